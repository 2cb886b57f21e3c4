// <cuda_bf16.h> of the emulator: __nv_bfloat16.
#pragma once

#include "kernels/vgpu/api/float16.hpp"
#include "kernels/vgpu/api/thread.hpp"

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
inline __nv_bfloat16 __hadd(__nv_bfloat16 a, __nv_bfloat16 b) { return a + b; }
inline __nv_bfloat16 __hsub(__nv_bfloat16 a, __nv_bfloat16 b) { return a - b; }
inline __nv_bfloat16 __hmul(__nv_bfloat16 a, __nv_bfloat16 b) { return a * b; }
inline __nv_bfloat16 __hdiv(__nv_bfloat16 a, __nv_bfloat16 b) { return a / b; }
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
  return __nv_bfloat16::fma(a, b, c);
}
inline __nv_bfloat16 __hneg(__nv_bfloat16 a) { return -a; }
inline bool __hisnan(__nv_bfloat16 a) { return std::isnan(static_cast<float>(a)); }
inline int __hisinf(__nv_bfloat16 a) {
  return std::isinf(static_cast<float>(a)) ? (static_cast<float>(a) > 0 ? 1 : -1) : 0;
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return h.bits(); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short u) { return __nv_bfloat16::from_bits(u); }
