// CUDA's keywords, vector types and device functions, as the host compiler sees them.
//
// A kernel is an ordinary function. An OS thread runs one block at a time, and a block stays on its
// thread until it ends, so a thread_local variable is a variable of the block.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <math.h>

#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __grid_constant__
#define CUDART_VERSION 12000

// ---- vector types ----
//
// The types are aligned as on the device, so that a misaligned vector load is an error here too
// (UBSan reports it).

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

#define VGPU_VECTORS(NAME, T, ALIGN2, ALIGN4)                \
  struct alignas(ALIGN2) NAME##2 {                           \
    T x, y;                                                  \
  };                                                         \
  struct alignas(ALIGN4) NAME##4 {                           \
    T x, y, z, w;                                            \
  };                                                         \
  inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; } \
  inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }

VGPU_VECTORS(char, signed char, 2, 4)
VGPU_VECTORS(uchar, unsigned char, 2, 4)
VGPU_VECTORS(short, short, 4, 8)
VGPU_VECTORS(ushort, unsigned short, 4, 8)
VGPU_VECTORS(int, int, 8, 16)
VGPU_VECTORS(uint, unsigned, 8, 16)
VGPU_VECTORS(longlong, long long, 16, 16)
VGPU_VECTORS(ulonglong, unsigned long long, 16, 16)
VGPU_VECTORS(float, float, 8, 16)
VGPU_VECTORS(double, double, 16, 16)
#undef VGPU_VECTORS

// ---- device functions ----
//
// The functions that <cmath> lacks: fast approximations (as accurate here as <cmath>, whose
// functions libm.hpp replaces, unless VGPU_LIBM_ULPS is set), bit casts, bit counts, and loads and
// stores with a cache hint (ignored here).

extern "C" {
float vgpu_expf(float x);
float vgpu_logf(float x);
float vgpu_powf(float x, float y);
}
namespace vgpu {
// The result of an inexact function of x, moved as VGPU_LIBM_ULPS says.
float moved_result(float result, float x);
double moved_result(double result, double x);
}  // namespace vgpu

inline float rsqrtf(float x) { return vgpu::moved_result(1.0F / sqrtf(x), x); }
inline double rsqrt(double x) { return vgpu::moved_result(1.0 / sqrt(x), x); }
inline float __expf(float x) { return vgpu_expf(x); }
inline float __logf(float x) { return vgpu_logf(x); }
inline float __powf(float x, float y) { return vgpu_powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0F / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dmul_rn(double x, double y) { return x * y; }

inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __ffsll(long long x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1;
}
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>((static_cast<std::uint64_t>(x) * y) >> 32);
}

inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>((static_cast<Wide>(x) * y) >> 64);
}

using std::max;
using std::min;

template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
void __stcg(T* p, T value) {
  *p = value;
}
template <class T>
void __stcs(T* p, T value) {
  *p = value;
}
