// <cuda_fp16.h> of the emulator: __half.
#pragma once

#if defined(__cplusplus) && __cplusplus >= 202002L  // kernels need C++20

#include "kernels/vgpu/api/float16.hpp"
#include "kernels/vgpu/api/thread.hpp"

#define __CUDA_FP16_TYPES_EXIST__

struct __half : vgpu::Float16<ringsmith::f16> {
  using Base = vgpu::Float16<ringsmith::f16>;
  using Base::Base;
  __half() = default;
  __half(Base base) : Base(base) {}
};
using half = __half;

inline __half __float2half(float f) { return {f}; }
inline __half __float2half_rn(float f) { return {f}; }
inline __half __double2half(double d) { return {d}; }
inline __half __ull2half_rn(unsigned long long u) { return {static_cast<double>(u)}; }
inline float __half2float(__half h) { return h; }
VGPU_FLOAT16_FUNCTIONS(__half)
inline unsigned short __half_as_ushort(__half h) { return h.bits(); }
inline __half __ushort_as_half(unsigned short u) { return __half::from_bits(u); }
#endif
