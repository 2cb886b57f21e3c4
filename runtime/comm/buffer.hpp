// What a collective is given: typed memory with its length in elements. Made from a std::span, so
// that a byte size can never arrive where a count was meant. It also says where it was made, which
// is where the call was made: site.hpp.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "runtime/base/dtype.hpp"
#include "runtime/base/units.hpp"
#include "runtime/comm/site.hpp"

namespace ringsmith::comm {

class ConstBuffer {
 public:
  ConstBuffer() = default;
  template <class T>
  // NOLINTNEXTLINE(google-explicit-constructor): the way in
  ConstBuffer(std::span<T> values, Site site = Site::here())
      : data_(reinterpret_cast<const std::byte*>(values.data())),
        count_(values.size()),
        dtype_(dtype_of<T>()),
        site_(site) {}
  ConstBuffer(const std::byte* data, Elements count, DType dtype, Site site = Site::here())
      : data_(data), count_(count), dtype_(dtype), site_(site) {}

  [[nodiscard]] const std::byte* data() const { return data_; }
  [[nodiscard]] Elements count() const { return count_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] Bytes size() const { return bytes_of(count_, size_of(dtype_)); }
  [[nodiscard]] Site site() const { return site_; }

 private:
  const std::byte* data_ = nullptr;
  Elements count_;
  DType dtype_ = DType::f32;
  Site site_;
};

class Buffer {
 public:
  Buffer() = default;
  template <class T>
  requires(!std::is_const_v<T>)
      Buffer(std::span<T> values, Site site = Site::here())  // NOLINT(google-explicit-constructor)
      : data_(reinterpret_cast<std::byte*>(values.data())),
        count_(values.size()),
        dtype_(dtype_of<T>()),
        site_(site) {}
  Buffer(std::byte* data, Elements count, DType dtype, Site site = Site::here())
      : data_(data), count_(count), dtype_(dtype), site_(site) {}

  operator ConstBuffer() const {
    return {data_, count_, dtype_, site_};
  }  // NOLINT(google-explicit-constructor)
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] Elements count() const { return count_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] Bytes size() const { return bytes_of(count_, size_of(dtype_)); }
  [[nodiscard]] Site site() const { return site_; }

 private:
  std::byte* data_ = nullptr;
  Elements count_;
  DType dtype_ = DType::f32;
  Site site_;
};

}  // namespace ringsmith::comm
