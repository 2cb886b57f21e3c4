// Single instructions of a device that C++ has no name for.
//
//   exp2_fast(x)           2^x within 2 ulps, in one instruction (ex2.approx.ftz.f32) where expf
//                          needs 11 with a branch. Results below 2^-126 are 0
//   two_halves(low, high)  rounds two floats to bf16, to nearest even, and packs them into 32 bits
//                          (cvt.rn.bf16x2.f32). bf16(float) needs 8 instructions for that. Every
//                          NaN becomes the same NaN
#pragma once

#include <cstdint>
#include <cuda_runtime.h>

#include "kernels/half.hpp"
#ifdef RINGSMITH_VGPU
#include "kernels/vgpu/api/arithmetic.hpp"
#endif

namespace ringsmith::kernels::cuda {

#ifdef RINGSMITH_VGPU

inline float exp2_fast(float x) { return vgpu::exp2_fast(x); }
inline std::uint32_t two_halves(float low, float high) { return vgpu::two_halves(low, high); }

#else

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline std::uint32_t two_halves(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t two;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  return two;
#else
  return std::uint32_t{bf16(high).bits} << 16 | bf16(low).bits;
#endif
}

#endif

}  // namespace ringsmith::kernels::cuda
