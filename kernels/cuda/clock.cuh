// A device's own clock, for deadlines in kernels. It is unrelated to the host's clock, and its
// resolution may be a microsecond or coarser (PTX ISA, "Special registers: %globaltimer").
#pragma once

#include <cstdint>
#include <cuda_runtime.h>
#ifdef RINGSMITH_VGPU
#include <chrono>
#endif

namespace ringsmith::kernels::cuda {

__device__ inline std::uint64_t nanoseconds_on_device() {
#ifdef RINGSMITH_VGPU
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
#else
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#endif
}

}  // namespace ringsmith::kernels::cuda
