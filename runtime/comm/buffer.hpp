// What a collective is given: typed memory with its length in elements. Made from a std::span, so
// that a byte size can never arrive where a count was meant.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "runtime/base/dtype.hpp"
#include "runtime/base/units.hpp"

namespace ringsmith::comm {

class ConstBuffer {
 public:
  ConstBuffer() = default;
  template <class T>
  ConstBuffer(std::span<T> values)  // NOLINT(google-explicit-constructor): the way in
      : data_(reinterpret_cast<const std::byte*>(values.data())),
        count_(values.size()),
        dtype_(dtype_of<T>()) {}
  ConstBuffer(const std::byte* data, Elements count, DType dtype)
      : data_(data), count_(count), dtype_(dtype) {}

  [[nodiscard]] const std::byte* data() const { return data_; }
  [[nodiscard]] Elements count() const { return count_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] Bytes size() const { return bytes_of(count_, size_of(dtype_)); }

 private:
  const std::byte* data_ = nullptr;
  Elements count_;
  DType dtype_ = DType::f32;
};

class Buffer {
 public:
  Buffer() = default;
  template <class T>
  requires(!std::is_const_v<T>) Buffer(std::span<T> values)  // NOLINT(google-explicit-constructor)
      : data_(reinterpret_cast<std::byte*>(values.data())),
        count_(values.size()),
        dtype_(dtype_of<T>()) {}
  Buffer(std::byte* data, Elements count, DType dtype)
      : data_(data), count_(count), dtype_(dtype) {}

  operator ConstBuffer() const {
    return {data_, count_, dtype_};
  }  // NOLINT(google-explicit-constructor)
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] Elements count() const { return count_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] Bytes size() const { return bytes_of(count_, size_of(dtype_)); }

 private:
  std::byte* data_ = nullptr;
  Elements count_;
  DType dtype_ = DType::f32;
};

}  // namespace ringsmith::comm
