// The caching device allocator: allocates and frees the memory of tensors on a GPU in stream order.
//
// cudaMalloc waits for the device and costs tens of microseconds, and cudaFree waits as well; they
// would dominate a training step. So freed blocks are kept, by device, stream and size class
// (runtime/base/allocator.hpp), and given to the next request of the same stream immediately,
// although kernels that use the old contents may still be queued:
//
//   stream   [kernel writes a] [kernel reads a]          [kernel writes b]
//   host     a = allocate ....... free(a)  b = allocate (the same block) ...     in order: no race
//
// If another stream uses a block, call record_use(). The block is then reused only after the work
// that this stream holds at the time of free().
//
// When the driver is out of memory, everything cached on the device is freed and the request is
// retried once. Thread-safe.
//
// RINGSMITH_CUDA_CACHE=off in the environment makes every request a cudaMalloc and every free a
// cudaFree: slow, but each tensor is then a separate allocation, whose bounds a memory checker
// (vgpu, compute-sanitizer) can check.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/allocator.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::device_allocator {

// For the calling thread's current stream on the device. Never null, also for zero bytes; aligned
// to 256 bytes. When out of memory, throws CudaError naming size, device and memory in use.
[[nodiscard]] std::byte* allocate(Device device, Bytes size);
// From any thread; the block must come from allocate(). It is lost if the device has failed.
void free(Device device, std::byte* block) noexcept;
// Declares that `stream` (of any device) uses the block, not only the stream for which it was
// allocated.
void record_use(Device device, std::byte* block, const Stream& stream);

[[nodiscard]] AllocatorStats stats(Device device);
void reset_peak(Device device);      // sets peak to current
void release_cached(Device device);  // waits for the device, then frees all cached blocks

[[nodiscard]] bool caching();
void set_caching(bool on);

}  // namespace ringsmith::device_allocator

namespace ringsmith {

// The driver's block of device memory that contains a pointer.
//
//   driver's block   |-----------------------|    small cudaMallocs share one
//   cudaMalloc gave        |-------|
//   pointer                   ^
//
// An IPC handle names the block, not the pointer: a rank that sends a handle also sends the offset
// within the block, for which it needs the block's base.
struct DriverBlock {
  std::uintptr_t base = 0;
  std::size_t bytes = 0;
};

// Throws CudaError if the pointer is not device memory of this process.
[[nodiscard]] DriverBlock driver_block_of(const void* device_pointer);

}  // namespace ringsmith
