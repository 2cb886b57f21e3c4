// <cuda_fp16.h> of the toolkit: the emulator's, and pairs.
#pragma once

#include "kernels/vgpu/include/cuda_fp16.h"

#if defined(__cplusplus) && __cplusplus >= 202002L  // kernels need C++20
#include "kernels/vgpu/api/foreign_half.hpp"

VGPU_HALF_PAIR(__half2, __half)
using half2 = __half2;

inline __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline __half2 __half2half2(__half x) { return {x, x}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }
inline float __low2float(__half2 a) { return a.x; }
inline float __high2float(__half2 a) { return a.y; }
inline __half __int2half_rn(int x) { return {x}; }
inline __half __uint2half_rn(unsigned x) { return {static_cast<double>(x)}; }
inline int __half2int_rn(__half x) { return static_cast<int>(nearbyintf(x)); }
inline int __half2int_rz(__half x) { return static_cast<int>(x); }
#endif
