// <cuda_bf16.h> of the toolkit: the emulator's, and pairs.
#pragma once

#include "kernels/vgpu/include/cuda_bf16.h"

#if defined(__cplusplus) && __cplusplus >= 202002L  // kernels need C++20
#include "kernels/vgpu/api/foreign_half.hpp"

VGPU_HALF_PAIR(__nv_bfloat162, __nv_bfloat16)
using nv_bfloat162 = __nv_bfloat162;

inline __nv_bfloat162 __float2bfloat162_rn(float x) { return {__nv_bfloat16(x), __nv_bfloat16(x)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline float __low2float(__nv_bfloat162 a) { return a.x; }
inline float __high2float(__nv_bfloat162 a) { return a.y; }
#endif
