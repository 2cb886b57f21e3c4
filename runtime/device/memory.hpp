// The caching device allocator: memory for tensors on a GPU, in stream order.
//
// cudaMalloc costs tens of microseconds, and both cudaMalloc and cudaFree may wait for the device.
// Freed blocks are therefore kept by device, stream and size class (runtime/base/allocator.hpp).
// The next request on the same stream may reuse a block immediately, even if kernels that use the
// old contents are still queued:
//
//   stream   [kernel writes a] [kernel reads a]          [kernel writes b]
//   host     a = allocate ....... free(a)  b = allocate (the same block) ...     in order: no race
//
// If another stream also uses a block, call record_use(), so that the block is reused only after
// the work that is queued on that stream at the time of free().
//
// When the driver is out of memory, the device's cached blocks are freed and the request is retried
// once. Thread-safe.
//
// With RINGSMITH_CUDA_CACHE=off in the environment, requests call cudaMalloc and free() calls
// cudaFree. This is slow, but a memory checker (vgpu, compute-sanitizer) can then check each
// tensor's bounds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/allocator.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::device_allocator {

// Allocates for the calling thread's current stream on the device. The block is aligned to 256
// bytes and never null, even for zero bytes. When out of memory, throws a CudaError that names the
// size, the device and the memory in use.
[[nodiscard]] std::byte* allocate(Device device, Bytes size);
// Callable from any thread. If the device has failed, the block leaks.
void free(Device device, std::byte* block) noexcept;
// Declares that `stream`, which may belong to another device, also uses the block.
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
//   allocation             |-------|
//   pointer                   ^
//
// An IPC handle names the block, not the pointer. A rank that sends a handle must therefore also
// send the pointer's offset within the block.
struct DriverBlock {
  std::uintptr_t base = 0;
  std::size_t bytes = 0;
};

// Throws CudaError if the pointer is not device memory of this process.
[[nodiscard]] DriverBlock driver_block_of(const void* device_pointer);

}  // namespace ringsmith
