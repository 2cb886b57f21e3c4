// Lab 14, part 1: floats in 16 bits.
//
//     float   s eeeeeeee fffffffffffffffffffffff     8 bits of exponent, 23 of fraction
//     bf16    s eeeeeeee fffffff                     the same exponents, 7 bits of fraction
//     f16     s eeeee ffffffffff                     fewer exponents, 10 bits of fraction
//
// The fields have the same meaning in all three, with bias = 127, 127 and 15:
//
//     exponent field 0          0.fraction * 2^(1 - bias)         zero and subnormal numbers
//     all ones                  infinity (fraction 0) or NaN
//     any other e               1.fraction * 2^(e - bias)
//
// A NaN is quiet when the first bit of its fraction is 1. A code is the 16 bits as a number.
#pragma once

#include <bit>
#include <cstdint>

#include "labs/kit/todo.hpp"

namespace lab14 {

// Task 1. Returns the nearest bf16; of two that are equally near, the one whose last bit is 0. A
// value that exceeds the largest finite one by half a step or more becomes infinite. The sign is
// kept, even for zero. A NaN, whichever of its bits are set, becomes a quiet NaN of either sign.
inline std::uint16_t to_bf16(float value) {
#ifdef SOLUTION
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return std::uint16_t(bits >> 16 | 0x40);
  // Adds half a step, or a little less if the last kept bit is 0. A carry out of the fraction
  // correctly increments the exponent, up to infinity's.
  return std::uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
#else
  (void)value;
  kit::todo("task 1, to_bf16");
#endif
}

// Also task 1. Returns the exact value.
inline float from_bf16(std::uint16_t code) {
#ifdef SOLUTION
  return std::bit_cast<float>(std::uint32_t(code) << 16);
#else
  (void)code;
  kit::todo("task 1, from_bf16");
#endif
}

// Task 2. Returns the nearest f16, by the same rules. f16 has subnormal numbers down to 2^-24.
inline std::uint16_t to_f16(float value) {
#ifdef SOLUTION
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return std::uint16_t(sign | 0x7E00);
  if (magnitude >= 0x47800000) return std::uint16_t(sign | 0x7C00);  // 65536 and more
  const std::uint32_t field = magnitude >> 23;
  if (field < 102) return std::uint16_t(sign);  // less than half of 2^-24
  // A normal number keeps exponent and fraction as adjacent bits. In a subnormal one the leading 1
  // is explicit, and each power of two below 2^-14 costs one bit.
  const bool normal = field >= 113;
  const std::uint32_t row = normal ? magnitude - (112U << 23) : (magnitude & 0x7FFFFF) | 0x800000;
  const std::uint32_t shift = normal ? 13 : 126 - field;
  const std::uint32_t kept = row >> shift, lost = row & ((1U << shift) - 1);
  const std::uint32_t half = 1U << (shift - 1);
  const bool up = lost > half || (lost == half && (kept & 1) != 0);
  return std::uint16_t(sign | (kept + up));
#else
  (void)value;
  kit::todo("task 2, to_f16");
#endif
}

// Also task 2. Returns the exact value.
inline float from_f16(std::uint16_t code) {
#ifdef SOLUTION
  const std::uint32_t sign = std::uint32_t(code & 0x8000) << 16;
  const std::uint32_t field = code >> 10 & 0x1F, fraction = code & 0x3FF;
  if (field == 0x1F) return std::bit_cast<float>(sign | 0x7F800000 | fraction << 13);
  if (field != 0) return std::bit_cast<float>(sign | (field + 112) << 23 | fraction << 13);
  const float magnitude = float(fraction) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
#else
  (void)code;
  kit::todo("task 2, from_f16");
#endif
}

// Given: both formats, selected by name.
enum class Format { bf16, f16 };
inline std::uint16_t encode(Format format, float value) {
  return format == Format::bf16 ? to_bf16(value) : to_f16(value);
}
inline float decode(Format format, std::uint16_t code) {
  return format == Format::bf16 ? from_bf16(code) : from_f16(code);
}

}  // namespace lab14
