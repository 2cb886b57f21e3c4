// The block of device memory that a pointer lies in, as the driver keeps it.
//
//   driver's block   |-----------------------|    small cudaMallocs share one
//   cudaMalloc gave        |-------|
//   pointer                   ^
//
// An IPC handle names the block, not the pointer: who ships a handle ships the offset within the
// block too, and this is where the block's base comes from.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringsmith {

struct DriverBlock {
  std::uintptr_t base = 0;
  std::size_t bytes = 0;
};

// CudaError if the pointer is no device memory of this process.
[[nodiscard]] DriverBlock driver_block_of(const void* device_pointer);

}  // namespace ringsmith
