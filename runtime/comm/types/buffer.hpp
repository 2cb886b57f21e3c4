// What a collective is given: typed memory with its length in elements. Made from a std::span, so
// that a byte size can never arrive where a count was meant.
//
// It also says where it was made, file and line, for the error that names the call: buffers are
// made in the argument list of a collective, so that the line where one is made is the line of the
// call, also through groups that only pass calls on.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "runtime/base/dtype.hpp"
#include "runtime/base/units.hpp"
#include "runtime/device/device.hpp"

namespace ringsmith::comm {

// A place in the program. (Not std::source_location, which clang 14 does not have.)
struct Site {
  const char* file = nullptr;  // a string literal
  int line = 0;

  // As a default argument: the caller of the function that has it.
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

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

// May be written, too.
class Buffer : public ConstBuffer {
 public:
  Buffer() = default;
  template <class T>
  requires(!std::is_const_v<T>)
      Buffer(std::span<T> values, Site site = Site::here())  // NOLINT(google-explicit-constructor)
      : ConstBuffer(values, site) {}
  Buffer(std::byte* data, Elements count, DType dtype, Site site = Site::here())
      : ConstBuffer(data, count, dtype, site) {}

  // It was made from memory that may be written.
  [[nodiscard]] std::byte* data() const { return const_cast<std::byte*>(ConstBuffer::data()); }
};

// Memory that the other ranks of the node can read and reduce from directly: no staging copy. Host
// code must not follow the pointer of device memory.
class CommMemory {
 public:
  virtual ~CommMemory() = default;
  [[nodiscard]] virtual std::byte* data() const = 0;
  [[nodiscard]] virtual Bytes size() const = 0;
  [[nodiscard]] virtual Device device() const { return Device::cpu(); }
  template <class T>
  [[nodiscard]] std::span<T> as() const {
    return {reinterpret_cast<T*>(data()), size().value / sizeof(T)};
  }
};

}  // namespace ringsmith::comm
