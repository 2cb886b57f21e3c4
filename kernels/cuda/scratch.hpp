// Device memory for one call of a kernel family: partial sums, counters, flags.
//
// The caching allocator provides it for the current device and stream. The memory may be freed
// before the kernels have run, because the block's next user is queued after them.
#pragma once

#include <cstdint>

#include "runtime/device/device.hpp"
#include "runtime/device/memory.hpp"

namespace ringsmith::kernels::cuda {

template <class T>
class Scratch {
 public:
  explicit Scratch(std::int64_t n)
      : device_(current_device()),
        block_(
            device_allocator::allocate(device_, Bytes(static_cast<std::size_t>(n) * sizeof(T)))) {}
  ~Scratch() { device_allocator::free(device_, block_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(block_); }

 private:
  Device device_;
  std::byte* block_;
};

}  // namespace ringsmith::kernels::cuda
