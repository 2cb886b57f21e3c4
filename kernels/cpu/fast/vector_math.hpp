// Mathematical functions that the compiler can vectorise: no branches, no tables, no calls.
//
// For float; double goes to the C library, being used for checks only. Each is within 2 ulp of the
// true value over the whole range (tests/kernels measure it), right for infinities and subnormal
// numbers, and NaN in gives NaN out. The polynomials are minimax fits made with the Remez exchange.
//
// Everything is in an unnamed namespace on purpose: each file that includes this compiles its own
// copy with its own flags.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace ringsmith::kernels::cpu {
namespace {

// 2^k for k in [-126, 127].
inline float power_of_two(std::int32_t k) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(k + 127) << 23);
}

struct VectorMath {
  // exp(x) = 2^n exp(r), |r| <= ln(2)/2. 2^n in two factors, so that results may be subnormal, or
  // overflow to infinity, by themselves. Comparisons written so that NaN passes through.
  static float exp(float x) {
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    constexpr float kRound = 12582912.0f;  // 1.5 2^23: adding it rounds to an integer
    const float shifted = x * 1.44269504f + kRound;
    const float n = shifted - kRound;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float q = 1.9918371739e-04f;
    q = q * r + 1.3946062105e-03f;
    q = q * r + 8.3332643794e-03f;
    q = q * r + 4.1666270097e-02f;
    q = q * r + 1.6666666861e-01f;
    q = q * r + 5.0000000779e-01f;
    const float e = (q * r) * r + r + 1.0f;
    const auto k = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) -
                                             std::bit_cast<std::uint32_t>(kRound));
    const std::int32_t half = k >> 1;
    return e * power_of_two(half) * power_of_two(k - half);
  }
};

}  // namespace
}  // namespace ringsmith::kernels::cpu
