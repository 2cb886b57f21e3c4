// <cuda_fp16.h> of the emulator: __half.
#pragma once

#include "kernels/vgpu/api/float16.hpp"
#include "kernels/vgpu/api/thread.hpp"

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
inline float __half2float(__half h) { return h; }
inline __half __hadd(__half a, __half b) { return a + b; }
inline __half __hsub(__half a, __half b) { return a - b; }
inline __half __hmul(__half a, __half b) { return a * b; }
inline __half __hdiv(__half a, __half b) { return a / b; }
inline __half __hfma(__half a, __half b, __half c) { return __half::fma(a, b, c); }
inline __half __hneg(__half a) { return -a; }
inline bool __hisnan(__half a) { return std::isnan(static_cast<float>(a)); }
inline int __hisinf(__half a) {
  return std::isinf(static_cast<float>(a)) ? (static_cast<float>(a) > 0 ? 1 : -1) : 0;
}
inline unsigned short __half_as_ushort(__half h) { return h.bits(); }
inline __half __ushort_as_half(unsigned short u) { return __half::from_bits(u); }
