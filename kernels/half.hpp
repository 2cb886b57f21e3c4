// The two 16-bit floating-point types: IEEE binary16 (f16) and bfloat16.
//
// They are storage types: arithmetic is done in float and rounded once per operation, to nearest,
// ties to even. Conversions to float are exact for all 65,536 codes (tests/base), and a NaN
// remains a NaN.
//
// Compiled by nvcc for a GPU, a conversion is one instruction instead of eight, with the same bits,
// except that every NaN becomes the same NaN.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace ringsmith {

#if defined(__CUDA_ARCH__)
namespace detail {
__device__ inline std::uint16_t f16_bits(float f) {
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(f));
  return bits;
}
__device__ inline float f16_value(std::uint16_t bits) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
  return f;
}
#if __CUDA_ARCH__ >= 800
__device__ inline std::uint16_t bf16_bits(float f) {
  std::uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(f));
  return bits;
}
#endif
}  // namespace detail
#endif

struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  explicit constexpr bf16(float f) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if (!std::is_constant_evaluated()) {
      bits = detail::bf16_bits(f);
      return;
    }
#endif
    const std::uint32_t u = std::bit_cast<std::uint32_t>(f);
    // A NaN with its payload in the low half could become an infinity, so force a quiet NaN.
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<std::uint16_t>((u >> 16) | 0x0040u);
      return;
    }
    bits = static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit constexpr operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

struct f16 {
  std::uint16_t bits = 0;

  f16() = default;
  explicit constexpr f16(float f) {
#if defined(__CUDA_ARCH__)
    if (!std::is_constant_evaluated()) {
      bits = detail::f16_bits(f);
      return;
    }
#endif
    const std::uint32_t u = std::bit_cast<std::uint32_t>(f);
    const std::uint32_t sign = (u >> 16) & 0x8000u;
    const std::uint32_t mag = u & 0x7fffffffu;
    std::uint32_t out;
    if (mag > 0x7f800000u) {
      out = 0x7e00u | ((mag >> 13) & 0x3ffu);
    } else if (mag >= 0x477ff000u) {  // 65520 and above round to infinity
      out = 0x7c00u;
    } else if (mag >= 0x38800000u) {  // normal
      const std::uint32_t rounded = mag + 0xfffu + ((mag >> 13) & 1u);
      out = (rounded - 0x38000000u) >> 13;
    } else {  // subnormal: adding 0.5 aligns the last kept bit with the unit of 0.5's mantissa
      const float magic = std::bit_cast<float>(mag) + 0.5f;
      out = std::bit_cast<std::uint32_t>(magic) - 0x3f000000u;
    }
    bits = static_cast<std::uint16_t>(sign | out);
  }
  explicit constexpr operator float() const {
#if defined(__CUDA_ARCH__)
    if (!std::is_constant_evaluated()) return detail::f16_value(bits);
#endif
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1fu;
    const std::uint32_t fraction = bits & 0x3ffu;
    if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
    if (exponent != 0)
      return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
};

static_assert(sizeof(bf16) == 2 && sizeof(f16) == 2);

namespace kernels {

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;

// The type in which a kernel computes with elements of type T.
template <class T>
using Wide = std::conditional_t<kIsHalf<T>, float, T>;

}  // namespace kernels

}  // namespace ringsmith
