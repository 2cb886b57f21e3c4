// The argument of a collective: typed memory with its length in elements. A buffer is made from a
// std::span, so that a byte size cannot be passed as a count.
//
// A buffer also records the file and line where it was made, for error messages. Buffers are
// usually made in a collective's argument list, so this is the line of the call, even if a group
// forwards it.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "runtime/base/dtype.hpp"
#include "runtime/base/units.hpp"
#include "runtime/device/device.hpp"

namespace ringsmith::comm {

// A place in the program. It replaces std::source_location, which clang 14 does not have.
struct Site {
  const char* file = nullptr;  // a string literal
  int line = 0;

  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

class ConstBuffer {
 public:
  ConstBuffer() = default;
  template <class T>
  // NOLINTNEXTLINE(google-explicit-constructor): implicit by design
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

class Buffer : public ConstBuffer {
 public:
  Buffer() = default;
  template <class T>
  requires(!std::is_const_v<T>)
      Buffer(std::span<T> values, Site site = Site::here())  // NOLINT(google-explicit-constructor)
      : ConstBuffer(values, site) {}
  Buffer(std::byte* data, Elements count, DType dtype, Site site = Site::here())
      : ConstBuffer(data, count, dtype, site) {}

  // The cast is valid, because the buffer was made from writable memory.
  [[nodiscard]] std::byte* data() const { return const_cast<std::byte*>(ConstBuffer::data()); }
};

// Memory that other ranks can access directly, without a staging copy, if they can map it. Host
// code must not dereference pointers to device memory.
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
