// Functions and types of CUDA C that ringsmith's kernels do not use, but programs written for nvcc
// do. Included by the toolkit's <cuda_runtime.h> (kernels/vgpu/toolkit).
//
//   vectors of 1 and 3       char1, float3, ..., and long1 to long4
//   integers                 __mul24, __brev, __byte_perm, umin, ...
//   directed rounding        __fadd_rd, __fsqrt_ru, ...: exact in a wider type, then rounded
//   conversions              __float2int_rz, ...: saturate, and a NaN becomes 0, as on the device
//   warps                    __match_any_sync, __reduce_add_sync, ..., made of shuffles
//   atomics with a scope     atomicAdd_system, atomicAdd_block: every atomic is system-wide here
//   clocks                   nanoseconds
#pragma once

#include <bit>
#include <cfenv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/vgpu/api/atomics.hpp"
#include "kernels/vgpu/api/language.hpp"
#include "kernels/vgpu/api/thread.hpp"

#define __noinline__ __attribute__((noinline))
#define __inline__ inline
#define __grid_constant__
#define __nv_pure__
#define CUDART_PI_F 3.141592654F
#define CUDART_INF_F __builtin_inff()
#define CUDART_INF __builtin_inf()

// ---- vector types ----

#define VGPU_SMALL_VECTORS(NAME, T)                  \
  struct NAME##1 {                                   \
    T x;                                             \
  };                                                 \
  struct NAME##3 {                                   \
    T x, y, z;                                       \
  };                                                 \
  inline NAME##1 make_##NAME##1(T x) { return {x}; } \
  inline NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; }
VGPU_SMALL_VECTORS(char, signed char)
VGPU_SMALL_VECTORS(uchar, unsigned char)
VGPU_SMALL_VECTORS(short, short)
VGPU_SMALL_VECTORS(ushort, unsigned short)
VGPU_SMALL_VECTORS(int, int)
VGPU_SMALL_VECTORS(long, long)
VGPU_SMALL_VECTORS(ulong, unsigned long)
VGPU_SMALL_VECTORS(longlong, long long)
VGPU_SMALL_VECTORS(ulonglong, unsigned long long)
VGPU_SMALL_VECTORS(float, float)
VGPU_SMALL_VECTORS(double, double)
#undef VGPU_SMALL_VECTORS
struct uint1 {
  unsigned x;
};
inline uint1 make_uint1(unsigned x) { return {x}; }
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
struct alignas(16) long2 {
  long x, y;
};
struct alignas(16) long4 {
  long x, y, z, w;
};
struct alignas(16) ulong2 {
  unsigned long x, y;
};
struct alignas(16) ulong4 {
  unsigned long x, y, z, w;
};
inline long2 make_long2(long x, long y) { return {x, y}; }
inline long4 make_long4(long x, long y, long z, long w) { return {x, y, z, w}; }
inline ulong2 make_ulong2(unsigned long x, unsigned long y) { return {x, y}; }
inline ulong4 make_ulong4(unsigned long x, unsigned long y, unsigned long z, unsigned long w) {
  return {x, y, z, w};
}

// ---- integers ----

inline unsigned umin(unsigned x, unsigned y) { return x < y ? x : y; }
inline unsigned umax(unsigned x, unsigned y) { return x > y ? x : y; }
inline long long llmin(long long x, long long y) { return x < y ? x : y; }
inline long long llmax(long long x, long long y) { return x > y ? x : y; }

// min and max for the types of CUDA's own overloads: a program's template may have the same form,
// and std::min and std::max refuse mixed types.
inline float min(float x, float y) { return fminf(x, y); }
inline float max(float x, float y) { return fmaxf(x, y); }
inline double min(double x, double y) { return fmin(x, y); }
inline double max(double x, double y) { return fmax(x, y); }
inline double min(float x, double y) { return fmin(x, y); }
inline double max(float x, double y) { return fmax(x, y); }
inline double min(double x, float y) { return fmin(x, y); }
inline double max(double x, float y) { return fmax(x, y); }
#ifdef __CUDACC__  // host files may have their own for int
#define VGPU_MIXED(A, B, T)                                                               \
  inline T min(A x, B y) {                                                                \
    return static_cast<T>(x) < static_cast<T>(y) ? static_cast<T>(x) : static_cast<T>(y); \
  }                                                                                       \
  inline T max(A x, B y) {                                                                \
    return static_cast<T>(x) > static_cast<T>(y) ? static_cast<T>(x) : static_cast<T>(y); \
  }
VGPU_MIXED(int, unsigned, unsigned)
VGPU_MIXED(unsigned, int, unsigned)
VGPU_MIXED(int, long long, long long)
VGPU_MIXED(long long, int, long long)
VGPU_MIXED(unsigned, unsigned long, unsigned long)
VGPU_MIXED(unsigned long, unsigned, unsigned long)
VGPU_MIXED(int, unsigned long, unsigned long)
VGPU_MIXED(unsigned long, int, unsigned long)
VGPU_MIXED(int, int, int)
VGPU_MIXED(unsigned, unsigned, unsigned)
VGPU_MIXED(long, long, long)
VGPU_MIXED(unsigned long, unsigned long, unsigned long)
VGPU_MIXED(long long, long long, long long)
VGPU_MIXED(unsigned long long, unsigned long long, unsigned long long)
#undef VGPU_MIXED
#endif

namespace vgpu {
inline std::int64_t low24(int x) {
  return static_cast<std::int32_t>(static_cast<unsigned>(x) << 8) >> 8;
}
}  // namespace vgpu

// The low 24 bits of both factors, and the low 32 bits of the product.
inline int __mul24(int x, int y) { return static_cast<int>(vgpu::low24(x) * vgpu::low24(y)); }
inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffffU) * (y & 0xffffffU); }
inline int __mulhi(int x, int y) {
  return static_cast<int>((static_cast<std::int64_t>(x) * y) >> 32);
}
inline long long __mul64hi(long long x, long long y) {
  __extension__ using Wide = __int128;
  return static_cast<long long>((static_cast<Wide>(x) * y) >> 64);
}
inline unsigned __sad(int x, int y, unsigned z) {
  const std::int64_t d = std::int64_t{x} - y;
  return static_cast<unsigned>(d < 0 ? -d : d) + z;
}
inline unsigned __usad(unsigned x, unsigned y, unsigned z) { return (x > y ? x - y : y - x) + z; }
inline unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; ++i) y |= (x >> i & 1U) << (31 - i);
  return y;
}
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
         __brev(static_cast<unsigned>(x >> 32));
}
// Selects four of the eight bytes of y:x. Bit 3 of a selector copies the byte's sign.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selectors) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(y) << 32 | x;
  unsigned out = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned selector = selectors >> (4 * i);
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (selector & 7U))) & 0xffU;
    if ((selector & 8U) != 0) byte = (byte & 0x80U) != 0 ? 0xffU : 0;
    out |= byte << (8 * i);
  }
  return out;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<std::uint64_t>(high) << 32 | low) << (shift & 31U) >>
                               32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<std::uint64_t>(high) << 32 | low) >> (shift & 31U));
}
inline int __hadd(int x, int y) { return static_cast<int>((std::int64_t{x} + y) >> 1); }
inline int __rhadd(int x, int y) { return static_cast<int>((std::int64_t{x} + y + 1) >> 1); }
inline unsigned __uhadd(unsigned x, unsigned y) {
  return static_cast<unsigned>((std::uint64_t{x} + y) >> 1);
}
// |a - b| of each of the four bytes, summed, plus c.
inline unsigned __vsadu4(unsigned a, unsigned b) {
  unsigned sum = 0;
  for (unsigned i = 0; i < 32; i += 8) sum = __usad(a >> i & 0xffU, b >> i & 0xffU, sum);
  return sum;
}

// ---- floating point ----

inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0F) : 0.0F; }  // NaN: 0
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline void __sincosf(float x, float* sine, float* cosine) { *sine = sinf(x), *cosine = cosf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __exp10f(float x) { return powf(10.0F, x); }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dsqrt_rn(double x) { return sqrt(x); }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
inline float normcdff(float x) { return 0.5F * erfcf(-x * 0.70710678118654752F); }
inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752); }
inline float rcbrtf(float x) { return 1.0F / cbrtf(x); }
inline float sinpif(float x) { return sinf(x * CUDART_PI_F); }
inline float cospif(float x) { return cosf(x * CUDART_PI_F); }

namespace vgpu {
// Runs `operation` with the processor's rounding direction set. Volatile operands keep the compiler
// from computing the result earlier, with another direction.
template <class T, class Operation>
T rounded(int direction, T x, T y, Operation operation) {
  const int before = std::fegetround();
  std::fesetround(direction);
  volatile T a = x, b = y;
  volatile T result = operation(a, b);
  std::fesetround(before);
  return result;
}
}  // namespace vgpu

#define VGPU_DIRECTED(NAME, T, EXPRESSION)                                               \
  inline T NAME##_rd(T x, T y) {                                                         \
    return vgpu::rounded(FE_DOWNWARD, x, y, [](T a, T b) -> T { return EXPRESSION; });   \
  }                                                                                      \
  inline T NAME##_ru(T x, T y) {                                                         \
    return vgpu::rounded(FE_UPWARD, x, y, [](T a, T b) -> T { return EXPRESSION; });     \
  }                                                                                      \
  inline T NAME##_rz(T x, T y) {                                                         \
    return vgpu::rounded(FE_TOWARDZERO, x, y, [](T a, T b) -> T { return EXPRESSION; }); \
  }
VGPU_DIRECTED(__fadd, float, a + b)
VGPU_DIRECTED(__fsub, float, a - b)
VGPU_DIRECTED(__fmul, float, a* b)
VGPU_DIRECTED(__fdiv, float, a / b)
VGPU_DIRECTED(__dadd, double, a + b)
VGPU_DIRECTED(__dsub, double, a - b)
VGPU_DIRECTED(__dmul, double, a* b)
VGPU_DIRECTED(__ddiv, double, a / b)
#undef VGPU_DIRECTED
#define VGPU_DIRECTED_ROOT(SUFFIX, DIRECTION)                                          \
  inline float __fsqrt_##SUFFIX(float x) {                                             \
    return vgpu::rounded(DIRECTION, x, 0.0F, [](float a, float) { return sqrtf(a); }); \
  }                                                                                    \
  inline double __dsqrt_##SUFFIX(double x) {                                           \
    return vgpu::rounded(DIRECTION, x, 0.0, [](double a, double) { return sqrt(a); }); \
  }                                                                                    \
  inline float __frcp_##SUFFIX(float x) { return __fdiv_##SUFFIX(1.0F, x); }           \
  inline double __drcp_##SUFFIX(double x) { return __ddiv_##SUFFIX(1.0, x); }
VGPU_DIRECTED_ROOT(rd, FE_DOWNWARD)
VGPU_DIRECTED_ROOT(ru, FE_UPWARD)
VGPU_DIRECTED_ROOT(rz, FE_TOWARDZERO)
#undef VGPU_DIRECTED_ROOT

// ---- conversions ----

namespace vgpu {
// `x` is a whole number. Values beyond To's range become the nearest that it has, a NaN becomes 0.
template <class To, class From>
To saturated(From x) {
  if (x != x) return 0;
  constexpr From kEnd = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * 2;
  if (x >= kEnd) return std::numeric_limits<To>::max();
  if (x <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  return static_cast<To>(x);
}
}  // namespace vgpu

#define VGPU_CONVERSION(NAME, FROM, TO)                                          \
  inline TO NAME##_rn(FROM x) { return vgpu::saturated<TO>(std::nearbyint(x)); } \
  inline TO NAME##_rz(FROM x) { return vgpu::saturated<TO>(std::trunc(x)); }     \
  inline TO NAME##_rd(FROM x) { return vgpu::saturated<TO>(std::floor(x)); }     \
  inline TO NAME##_ru(FROM x) { return vgpu::saturated<TO>(std::ceil(x)); }
VGPU_CONVERSION(__float2int, float, int)
VGPU_CONVERSION(__float2uint, float, unsigned)
VGPU_CONVERSION(__float2ll, float, long long)
VGPU_CONVERSION(__float2ull, float, unsigned long long)
VGPU_CONVERSION(__double2int, double, int)
VGPU_CONVERSION(__double2uint, double, unsigned)
VGPU_CONVERSION(__double2ll, double, long long)
VGPU_CONVERSION(__double2ull, double, unsigned long long)
#undef VGPU_CONVERSION
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline int __double2hiint(double x) {
  return static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 32);
}
inline int __double2loint(double x) { return static_cast<int>(std::bit_cast<std::uint64_t>(x)); }
inline double __hiloint2double(int high, int low) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(static_cast<unsigned>(high)) << 32 |
                               static_cast<unsigned>(low));
}

// ---- warps ----

// The lanes that run together with the caller. CUDA promises only that the caller is one of them;
// here lanes run one after the other, so there are no others.
inline unsigned __activemask() { return 1U << vgpu::lane(); }
inline unsigned vgpu_lanemask_lt() { return (1U << vgpu::lane()) - 1; }

namespace vgpu {
// Calls visit(lane, its value) for each lane of the mask.
template <class T, class Visit>
void each_lane(unsigned mask, T value, const Source& where, Visit visit) {
  for (unsigned l = 0; l < 32; ++l)
    if ((mask >> l & 1U) != 0) visit(l, shuffle_value(mask, value, l, where));
}
template <class T, class Combine>
T reduce_lanes(unsigned mask, T value, const Source& where, Combine combine) {
  T sum{};
  bool first = true;
  each_lane(mask, value, where, [&](unsigned, T x) {
    sum = first ? x : combine(sum, x);
    first = false;
  });
  return sum;
}
}  // namespace vgpu

// Returns the lanes of the mask that have this value.
template <class T>
unsigned __match_any_sync(unsigned mask, T value, vgpu::Source where = vgpu::Source::current()) {
  unsigned same = 0;
  vgpu::each_lane(mask, value, where,
                  [&](unsigned l, T x) { same |= (x == value ? 1U : 0U) << l; });
  return same;
}
template <class T>
unsigned __match_all_sync(unsigned mask, T value, int* all,
                          vgpu::Source where = vgpu::Source::current()) {
  const unsigned same = __match_any_sync(mask, value, where);
  *all = same == mask ? 1 : 0;
  return *all != 0 ? mask : 0;
}
#define VGPU_REDUCTION(NAME, T, EXPRESSION)                                         \
  inline T __reduce_##NAME##_sync(unsigned mask, T value,                           \
                                  vgpu::Source where = vgpu::Source::current()) {   \
    return vgpu::reduce_lanes(mask, value, where,                                   \
                              [](T a, T b) { return static_cast<T>(EXPRESSION); }); \
  }
VGPU_REDUCTION(add, unsigned, a + b)
VGPU_REDUCTION(add, int, static_cast<unsigned>(a) + static_cast<unsigned>(b))
VGPU_REDUCTION(min, unsigned, a < b ? a : b)
VGPU_REDUCTION(min, int, a < b ? a : b)
VGPU_REDUCTION(max, unsigned, a > b ? a : b)
VGPU_REDUCTION(max, int, a > b ? a : b)
VGPU_REDUCTION(and, unsigned, a& b)
VGPU_REDUCTION(or, unsigned, a | b)
VGPU_REDUCTION(xor, unsigned, a ^ b)
#undef VGPU_REDUCTION

// ---- atomics ----

#define VGPU_SCOPED(NAME)                                                                          \
  template <class T>                                                                               \
  T NAME##_system(T* p, std::type_identity_t<T> v, vgpu::Source where = vgpu::Source::current()) { \
    return NAME(p, v, where);                                                                      \
  }                                                                                                \
  template <class T>                                                                               \
  T NAME##_block(T* p, std::type_identity_t<T> v, vgpu::Source where = vgpu::Source::current()) {  \
    return NAME(p, v, where);                                                                      \
  }
VGPU_SCOPED(atomicAdd)
VGPU_SCOPED(atomicSub)
VGPU_SCOPED(atomicExch)
VGPU_SCOPED(atomicMin)
VGPU_SCOPED(atomicMax)
VGPU_SCOPED(atomicAnd)
VGPU_SCOPED(atomicOr)
VGPU_SCOPED(atomicXor)
VGPU_SCOPED(atomicInc)
VGPU_SCOPED(atomicDec)
#undef VGPU_SCOPED
template <class T>
T atomicCAS_system(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> desired,
                   vgpu::Source where = vgpu::Source::current()) {
  return atomicCAS(p, expected, desired, where);
}
template <class T>
T atomicCAS_block(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> desired,
                  vgpu::Source where = vgpu::Source::current()) {
  return atomicCAS(p, expected, desired, where);
}
#define VGPU_SIGNED_64(NAME, NEXT)                                                                 \
  inline long long NAME(long long* p, long long v, vgpu::Source where = vgpu::Source::current()) { \
    return vgpu::update(p, where, [v](long long old) { return NEXT; });                            \
  }
VGPU_SIGNED_64(atomicMin, v < old ? v : old)
VGPU_SIGNED_64(atomicMax, v > old ? v : old)
#undef VGPU_SIGNED_64

// ---- clocks ----

inline long long clock64() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
inline unsigned long long vgpu_globaltimer() { return static_cast<unsigned long long>(clock64()); }
