// <cuda_bf16.h> of the emulator: __nv_bfloat16.
#pragma once

#if defined(__cplusplus) && __cplusplus >= 202002L  // kernels need C++20

#include "kernels/vgpu/api/float16.hpp"
#include "kernels/vgpu/api/thread.hpp"

#define __CUDA_BF16_TYPES_EXIST__

struct __nv_bfloat16 : vgpu::Float16<ringsmith::bf16> {
  using Base = vgpu::Float16<ringsmith::bf16>;
  using Base::Base;
  __nv_bfloat16() = default;
  __nv_bfloat16(Base base) : Base(base) {}
};
using nv_bfloat16 = __nv_bfloat16;

inline __nv_bfloat16 __float2bfloat16(float f) { return {f}; }
inline __nv_bfloat16 __float2bfloat16_rn(float f) { return {f}; }
inline __nv_bfloat16 __double2bfloat16(double d) { return {d}; }
inline float __bfloat162float(__nv_bfloat16 h) { return h; }
VGPU_FLOAT16_FUNCTIONS(__nv_bfloat16)
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return h.bits(); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short u) { return __nv_bfloat16::from_bits(u); }
#endif
