// Unusual and correct: each code is decoded by its formula, and to_f16 and to_bf16 search the codes
// for the nearest number by bisection, in double.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace lab14 {

struct Layout {
  int fraction, bias;
};
inline constexpr Layout kBf16{7, 127}, kF16{10, 15};

// Returns the magnitude of a code. The code of infinity gets the value that would follow the
// largest finite number.
inline double magnitude_of(Layout layout, int code) {
  const int field = code >> layout.fraction, rest = code & ((1 << layout.fraction) - 1);
  const int lead = field > 0 ? 1 << layout.fraction : 0;
  return std::ldexp(lead + rest, (field > 0 ? field : 1) - layout.bias - layout.fraction);
}
inline int infinite_code(Layout layout) { return (2 * layout.bias + 1) << layout.fraction; }

inline std::uint16_t nearest(Layout layout, float value) {
  const int sign = std::signbit(value) ? 0x8000 : 0, infinite = infinite_code(layout);
  if (std::isnan(value)) return std::uint16_t(sign | 0x7FFF);
  const double x = std::fabs(double(value));
  int below = 0, above = infinite;  // codes of a number at most x, and of a number above x
  if (x >= magnitude_of(layout, infinite)) return std::uint16_t(sign | infinite);
  while (above - below > 1) {
    const int middle = (below + above) / 2;
    (magnitude_of(layout, middle) <= x ? below : above) = middle;
  }
  const double down = x - magnitude_of(layout, below), up = magnitude_of(layout, above) - x;
  const bool even = below % 2 == 0;
  return std::uint16_t(sign | (down < up || (down == up && even) ? below : above));
}
inline float value_of(Layout layout, std::uint16_t code) {
  const int rest = code & 0x7FFF, infinite = infinite_code(layout);
  double x = rest < infinite ? magnitude_of(layout, rest) : std::numeric_limits<double>::infinity();
  if (rest > infinite) x = std::numeric_limits<double>::quiet_NaN();
  return float((code & 0x8000) != 0 ? -x : x);
}

inline std::uint16_t to_bf16(float value) { return nearest(kBf16, value); }
inline std::uint16_t to_f16(float value) { return nearest(kF16, value); }
inline float from_bf16(std::uint16_t code) { return value_of(kBf16, code); }
inline float from_f16(std::uint16_t code) { return value_of(kF16, code); }

enum class Format { bf16, f16 };
inline std::uint16_t encode(Format format, float value) {
  return nearest(format == Format::bf16 ? kBf16 : kF16, value);
}
inline float decode(Format format, std::uint16_t code) {
  return value_of(format == Format::bf16 ? kBf16 : kF16, code);
}

}  // namespace lab14
