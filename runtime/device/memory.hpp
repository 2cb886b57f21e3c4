// The caching device allocator: memory of tensors on a GPU, given out and taken back in the order
// of a stream.
//
// cudaMalloc waits for the device and costs tens of microseconds, cudaFree waits as well; a
// training step that called them would do nothing else. So freed blocks are kept, by device, stream
// and size class (runtime/base/allocator.hpp), and handed to the next request of that stream at
// once, although kernels that use the old contents may still be queued:
//
//   stream   [kernel writes a] [kernel reads a]          [kernel writes b]
//   host     a = allocate ....... free(a)  b = allocate (the same block) ...     in order: no race
//
// Another stream that uses a block must be announced: record_use(). The block is then reused only
// after what that stream holds at the time of free().
//
// When the driver has no memory left, everything cached on the device is given back and the request
// is tried once more. Thread-safe.
//
// RINGSMITH_CUDA_CACHE=off in the environment makes every request a cudaMalloc and every free a
// cudaFree: slow, but each tensor then has borders of its own, which a memory checker (vgpu,
// compute-sanitizer) can watch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/allocator.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::device_allocator {

// For the calling thread's current stream on the device. Never null, also for zero bytes; aligned
// to 256 bytes. CudaError naming the size, the device and what is in use if memory has run out.
[[nodiscard]] std::byte* allocate(Device device, Bytes size);
// From any thread; the block must come from allocate(). If the device has failed, the block is lost
// with it.
void free(Device device, std::byte* block) noexcept;
// `stream` (of any device) uses the block beside the stream that it was allocated for.
void record_use(Device device, std::byte* block, const Stream& stream);

[[nodiscard]] AllocatorStats stats(Device device);
void reset_peak(Device device);      // peak becomes current
void release_cached(Device device);  // waits for the device and gives all free blocks back

[[nodiscard]] bool caching();
void set_caching(bool on);

}  // namespace ringsmith::device_allocator

namespace ringsmith {

// The block of device memory that a pointer lies in, as the driver keeps it.
//
//   driver's block   |-----------------------|    small cudaMallocs share one
//   cudaMalloc gave        |-------|
//   pointer                   ^
//
// An IPC handle names the block, not the pointer: who ships a handle ships the offset within the
// block too, and this is where the block's base comes from.
struct DriverBlock {
  std::uintptr_t base = 0;
  std::size_t bytes = 0;
};

// CudaError if the pointer is not device memory of this process.
[[nodiscard]] DriverBlock driver_block_of(const void* device_pointer);

}  // namespace ringsmith
