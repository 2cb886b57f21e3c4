// Vectors of f16 and bf16, widened to float and rounded back to 16 bits, with the same bits as the
// scalar conversions of kernels/half.hpp. The vector types are the compiler's (vector_size), as
// wide as the processor's registers.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "kernels/half.hpp"

namespace ringsmith::kernels::cpu {
namespace {

#if defined(__AVX512F__)
constexpr std::size_t kVectorBytes = 64;
#elif defined(__AVX__)
constexpr std::size_t kVectorBytes = 32;
#else
constexpr std::size_t kVectorBytes = 16;
#endif

typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef std::uint32_t Words __attribute__((vector_size(kVectorBytes)));
typedef std::uint16_t Halves __attribute__((vector_size(kVectorBytes / 2)));

template <class V>
V load_bytes(const void* data) {
  V v;
  std::memcpy(&v, data, sizeof v);
  return v;
}

// Returns a mask of the lanes that contain NaN. It is zero for integers.
template <class V>
auto nan_in(const V& v) {
  return v != v;  // NOLINT(misc-redundant-expression)
}

template <class T>
struct HalfVector;

// bf16 is the upper half of a float. To round to nearest even, add one less than half of the last
// kept bit, plus one if that bit is set, and drop the lower half. A NaN is handled separately:
// dropping its lower half could leave an infinity, and a carry could turn it into a zero.
template <>
struct HalfVector<bf16> {
  static Floats widen(const Halves& h) {
    return std::bit_cast<Floats>(__builtin_convertvector(h, Words) << 16);
  }
  static Halves narrow(const Floats& v) { return __builtin_convertvector(rounded_bits(v), Halves); }
  static Halves narrow_exact(const Floats& v) {  // for floats that bf16 represents exactly
    return __builtin_convertvector(std::bit_cast<Words>(v) >> 16, Halves);
  }
  static Floats round(const Floats& v) { return std::bit_cast<Floats>(rounded_bits(v) << 16); }

 private:
  static Words rounded_bits(const Floats& v) {
    const Words u = std::bit_cast<Words>(v);
    const Words nan = (u >> 16) | 0x40U, finite = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
    return nan_in(v) ? nan : finite;
  }
};

// f16 uses the hardware's conversions (F16C, AVX-512 or arm64), or else converts lane by lane.
template <>
struct HalfVector<f16> {
#if defined(__AVX512F__)
  static Floats widen(const Halves& h) {
    return std::bit_cast<Floats>(_mm512_cvtph_ps(std::bit_cast<__m256i>(h)));
  }
  static Halves narrow(const Floats& v) {
    return std::bit_cast<Halves>(
        _mm512_cvtps_ph(std::bit_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
  }
#elif defined(__F16C__)
  static Floats widen(const Halves& h) {
    return std::bit_cast<Floats>(_mm256_cvtph_ps(std::bit_cast<__m128i>(h)));
  }
  static Halves narrow(const Floats& v) {
    return std::bit_cast<Halves>(
        _mm256_cvtps_ph(std::bit_cast<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
  }
#elif defined(__aarch64__)
  static Floats widen(const Halves& h) {
    return std::bit_cast<Floats>(vcvt_f32_f16(std::bit_cast<float16x4_t>(h)));
  }
  static Halves narrow(const Floats& v) {
    return std::bit_cast<Halves>(vcvt_f16_f32(std::bit_cast<float32x4_t>(v)));
  }
#else
  static Floats widen(const Halves& h) {
    Floats v;
    for (std::size_t i = 0; i < kVectorBytes / sizeof(float); ++i) {
      f16 x;
      x.bits = h[i];
      v[i] = static_cast<float>(x);
    }
    return v;
  }
  static Halves narrow(const Floats& v) {
    Halves h;
    for (std::size_t i = 0; i < kVectorBytes / sizeof(float); ++i) h[i] = f16(v[i]).bits;
    return h;
  }
#endif
  static Halves narrow_exact(const Floats& v) { return narrow(v); }
  static Floats round(const Floats& v) { return widen(narrow(v)); }
};

constexpr std::size_t kHalvesInVector = kVectorBytes / sizeof(float);

// widen() and narrow() convert n contiguous numbers.
template <class T>
[[maybe_unused]] void widen(const T* from, float* to, std::int64_t n) {
  const auto size = static_cast<std::size_t>(n);
  std::size_t i = 0;
  for (; i + kHalvesInVector <= size; i += kHalvesInVector) {
    const Floats wide = HalfVector<T>::widen(load_bytes<Halves>(from + i));
    std::memcpy(to + i, &wide, sizeof wide);
  }
  for (; i < size; ++i) to[i] = static_cast<float>(from[i]);
}
template <class T>
[[maybe_unused]] void narrow(const float* from, T* to, std::int64_t n) {
  const auto size = static_cast<std::size_t>(n);
  std::size_t i = 0;
  for (; i + kHalvesInVector <= size; i += kHalvesInVector) {
    const Halves half = HalfVector<T>::narrow(load_bytes<Floats>(from + i));
    std::memcpy(static_cast<void*>(to + i), &half, sizeof half);
  }
  for (; i < size; ++i) to[i] = T(from[i]);
}

}  // namespace
}  // namespace ringsmith::kernels::cpu
