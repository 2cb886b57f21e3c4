// exp, log, tanh, sigmoid, erf and GELU as straight-line float arithmetic that compilers vectorise.
//
// A loop over std::exp calls the C library once per element. A loop over vec::exp processes 4 to 16
// lanes at a time, because no function here branches: both sides of a choice are computed and one
// is selected. Each function reduces its argument to a short interval and evaluates a minimax
// polynomial there (fitted by Remez exchange with 40 digits).
//
// Accuracy against float64, on every 509th float (tests/kernels/vecmath_test.cpp): exp, log, tanh
// and erf within 2 ulp, sigmoid within 3, subnormal results included. NaN stays NaN; exp(+-inf),
// log(0), log(inf), tanh(+-inf), erf(+-inf) are exact. log of a negative number is NaN.
//
// The functions have internal linkage, because files with and without -ffp-contract include them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace ringsmith::kernels::cpu::vec {
namespace {

#define RINGSMITH_VEC [[maybe_unused, gnu::always_inline]] inline

// 2^n for an integer -126 <= n <= 127.
RINGSMITH_VEC float power_of_two(std::int32_t n) { return std::bit_cast<float>((n + 127) << 23); }

RINGSMITH_VEC float with_sign_of(float magnitude, float sign) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(magnitude) & 0x7fffffffU) |
                              (std::bit_cast<std::uint32_t>(sign) & 0x80000000U));
}

RINGSMITH_VEC float magnitude(float x) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7fffffffU);
}

// exp(x) = 2^n exp(r), |r| <= ln(2) / 2.
RINGSMITH_VEC float exp(float x) {
  constexpr float kRound = 12582912.0F;     // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kLn2High = 0.693145752F;  // n * kLn2High is exact for |n| < 2^9
  constexpr float kLn2Low = 1.42860677e-6F;
  // Beyond these bounds the result is inf or 0. Comparisons with NaN are false, so NaN is kept.
  x = x > 89.0F ? 89.0F : x;
  x = x < -104.0F ? -104.0F : x;
  const float shifted = x * 1.44269504F + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 0.00138144649F;
  p = p * r + 0.00836877991F;
  p = p * r + 0.0416683927F;
  p = p * r + 0.166665196F;
  p = p * r + 0.49999994F;
  const float y = p * (r * r) + r + 1.0F;
  // Two factors, because 2^n alone leaves the range before exp does (overflow, subnormals). n is in
  // the low bits of `shifted`. For NaN these bits are arbitrary, but y is NaN.
  const auto k = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) -
                                           std::bit_cast<std::uint32_t>(kRound));
  const std::int32_t half = k >> 1;
  return y * power_of_two(half) * power_of_two(k - half);
}

// log(x) = e ln(2) + log(1 + f), sqrt(1/2) <= 1 + f < sqrt(2).
RINGSMITH_VEC float log(float x) {
  const bool tiny = x < 1.17549435e-38F;  // subnormal: bring it into the normal range first
  const float scaled = tiny ? x * 8388608.0F : x;
  constexpr std::uint32_t kSqrtHalf = 0x3f3504f3U;
  const std::uint32_t offset = std::bit_cast<std::uint32_t>(scaled) - kSqrtHalf;
  const std::int32_t e = (static_cast<std::int32_t>(offset) >> 23) - (tiny ? 23 : 0);
  const float m = std::bit_cast<float>((offset & 0x007fffffU) + kSqrtHalf);
  const float f = m - 1.0F;
  float p = 0.0691537037F;
  p = p * f - 0.117897198F;
  p = p * f + 0.118729256F;
  p = p * f - 0.12384361F;
  p = p * f + 0.142186671F;
  p = p * f - 0.16669251F;
  p = p * f + 0.200022265F;
  p = p * f - 0.249999866F;
  p = p * f + 0.333333105F;
  const float square = f * f;
  const float n = static_cast<float>(e);
  float y = p * (square * f) + n * 1.42860677e-6F;
  y = y - 0.5F * square;
  y = f + y + n * 0.693145752F;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  y = x == 0.0F ? -kInf : y;
  y = x < 0.0F ? std::numeric_limits<float>::quiet_NaN() : y;
  return x < kInf ? y : x;  // inf and NaN are their own logarithms
}

// An odd polynomial for |x| < 0.5625, otherwise 1 - 2 / (exp(2|x|) + 1).
RINGSMITH_VEC float tanh(float x) {
  const float a = magnitude(x);
  const float s = x * x;
  float p = -0.00617980957F;
  p = p * s + 0.0210074577F;
  p = p * s - 0.0538374297F;
  p = p * s + 0.133324519F;
  p = p * s - 0.333333135F;
  const float small = a + a * (s * p);
  const float large = 1.0F - 2.0F / (exp(2.0F * a) + 1.0F);
  return with_sign_of(a < 0.5625F ? small : large, x);
}

// Written with exp(-|x|), so that neither side overflows or loses its small values.
RINGSMITH_VEC float sigmoid(float x) {
  const float e = exp(-magnitude(x));
  const float y = 1.0F / (1.0F + e);
  return x < 0.0F ? e * y : y;
}

// An odd polynomial for |x| < 1, otherwise 1 - exp(q(|x|)), where q approximates log(erfc) on
// [1, 4], with the sign of x.
RINGSMITH_VEC float erf(float x) {
  const float a = magnitude(x);
  const float s = x * x;
  float p = 7.85386219e-05F;
  p = p * s - 0.000801019371F;
  p = p * s + 0.00518832775F;
  p = p * s - 0.026853811F;
  p = p * s + 0.112835854F;
  p = p * s - 0.37612626F;
  p = p * s + 0.128379166F;
  const float small = x + x * p;
  const float t = a > 4.0F ? 4.0F : a;  // erfc(4) is below half an ulp of 1
  float q = 0.000186374309F;
  q = q * t - 0.00294760894F;
  q = q * t + 0.0218378622F;
  q = q * t - 0.10310632F;
  q = q * t - 0.638145328F;
  q = q * t - 1.1270889F;
  q = q * t - 0.000341601379F;
  const float large = with_sign_of(1.0F - exp(q), x);
  return a < 1.0F ? small : large;
}

// ---- GELU and its derivative, both forms of PyTorch ----

RINGSMITH_VEC float gelu_erf(float x) { return 0.5F * x * (1.0F + erf(x * 0.707106781F)); }

RINGSMITH_VEC float gelu_erf_derivative(float x) {
  const float cdf = 0.5F * (1.0F + erf(x * 0.707106781F));
  return cdf + x * (0.398942280F * exp(-0.5F * x * x));
}

// 0.5 (1 + tanh(u)) = sigmoid(2u), with 2u = 2 sqrt(2/pi) (x + 0.044715 x^3).
RINGSMITH_VEC float gelu_tanh(float x) {
  const float u2 = x * (1.59576912F + 0.0713548163F * x * x);
  return x / (1.0F + exp(-u2));
}

// s (1 - s) as e / (1 + e)^2 with e = exp(-|2u|), because 1 - s would lose its digits near s = 1.
RINGSMITH_VEC float gelu_tanh_derivative(float x) {
  const float u2 = x * (1.59576912F + 0.0713548163F * x * x);
  const float e = exp(-magnitude(u2));
  const float t = 1.0F / (1.0F + e);
  const float s = u2 < 0.0F ? e * t : t;
  return s + e * t * t * x * (1.59576912F + 0.214064449F * x * x);
}

#undef RINGSMITH_VEC

}  // namespace
}  // namespace ringsmith::kernels::cpu::vec
