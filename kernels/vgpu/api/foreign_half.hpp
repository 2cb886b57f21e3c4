// Pairs of 16-bit floating-point values, and functions of single ones, that ringsmith's kernels do
// not use. Included by the toolkit's <cuda_fp16.h> and <cuda_bf16.h>. Every operation rounds each
// half once.
#pragma once

#include <cmath>

#include "kernels/vgpu/api/atomics.hpp"
#include "kernels/vgpu/api/float16.hpp"

// PAIR: a type of two halves T, as a device's register holds them.
#define VGPU_HALF_PAIR(PAIR, T)                                                                    \
  struct alignas(4) PAIR {                                                                         \
    T x, y;                                                                                        \
    PAIR() = default;                                                                              \
    PAIR(T a, T b) : x(a), y(b) {}                                                                 \
    friend PAIR operator+(PAIR a, PAIR b) { return {a.x + b.x, a.y + b.y}; }                       \
    friend PAIR operator-(PAIR a, PAIR b) { return {a.x - b.x, a.y - b.y}; }                       \
    friend PAIR operator*(PAIR a, PAIR b) { return {a.x * b.x, a.y * b.y}; }                       \
    friend PAIR operator/(PAIR a, PAIR b) { return {a.x / b.x, a.y / b.y}; }                       \
    PAIR& operator+=(PAIR b) { return *this = *this + b; }                                         \
    PAIR& operator-=(PAIR b) { return *this = *this - b; }                                         \
    PAIR& operator*=(PAIR b) { return *this = *this * b; }                                         \
  };                                                                                               \
  inline PAIR __hadd2(PAIR a, PAIR b) { return a + b; }                                            \
  inline PAIR __hsub2(PAIR a, PAIR b) { return a - b; }                                            \
  inline PAIR __hmul2(PAIR a, PAIR b) { return a * b; }                                            \
  inline PAIR __h2div(PAIR a, PAIR b) { return a / b; }                                            \
  inline PAIR __hfma2(PAIR a, PAIR b, PAIR c) {                                                    \
    return {T::fma(a.x, b.x, c.x), T::fma(a.y, b.y, c.y)};                                         \
  }                                                                                                \
  inline PAIR __hneg2(PAIR a) { return {-a.x, -a.y}; }                                             \
  inline PAIR make_##PAIR(T a, T b) { return {a, b}; }                                             \
  inline T __hmax(T a, T b) { return T(fmaxf(float(a), float(b))); }                               \
  inline T __hmin(T a, T b) { return T(fminf(float(a), float(b))); }                               \
  inline T __habs(T a) { return T(fabsf(float(a))); }                                              \
  inline bool __heq(T a, T b) { return a == b; }                                                   \
  inline bool __hne(T a, T b) { return a != b; }                                                   \
  inline bool __hlt(T a, T b) { return a < b; }                                                    \
  inline bool __hle(T a, T b) { return a <= b; }                                                   \
  inline bool __hgt(T a, T b) { return a > b; }                                                    \
  inline bool __hge(T a, T b) { return a >= b; }                                                   \
  inline T hsqrt(T a) { return T(sqrtf(float(a))); }                                               \
  inline T hexp(T a) { return T(expf(float(a))); }                                                 \
  inline T hlog(T a) { return T(logf(float(a))); }                                                 \
  inline T hrcp(T a) { return T(1.0F / float(a)); }                                                \
  inline T atomicAdd(T* p, T v, vgpu::Source where = vgpu::Source::current()) {                    \
    return T::from_bits(vgpu::update(                                                              \
        reinterpret_cast<unsigned short*>(p), where,                                               \
        [v](unsigned short old) -> unsigned short { return (T(T::from_bits(old)) + v).bits(); })); \
  }
