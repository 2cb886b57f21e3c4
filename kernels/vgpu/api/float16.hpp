// Shared by __half and __nv_bfloat16: storage in 16 bits, and arithmetic that rounds once, to
// nearest even. Float suffices for sums, because its 24 bits are at least 2p + 2 for both types (p:
// bits of the significand). Products and quotients of bf16 may be so small that float would round
// them too, so they use double, as does a fused multiply-add. A value that float or double cannot
// hold is rounded to odd, so that only the final rounding matters.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/half.hpp"

namespace vgpu {

// Storage: ringsmith::f16 or ringsmith::bf16. As on the device, the default constructor leaves the
// value undefined.
template <class Storage>
class Float16 {
 public:
  Float16() = default;
  Float16(float f) : bits_(std::isnan(f) ? kNaN : Storage(f).bits) {}
  Float16(double d) : Float16(round_to_odd(d)) {}
  Float16(int i) : Float16(static_cast<double>(i)) {}
  operator float() const {
    Storage s;
    s.bits = bits_;
    return static_cast<float>(s);
  }

  Float16& operator+=(Float16 b) { return *this = *this + b; }
  Float16& operator-=(Float16 b) { return *this = *this - b; }
  Float16& operator*=(Float16 b) { return *this = *this * b; }
  Float16& operator/=(Float16 b) { return *this = *this / b; }
  friend Float16 operator+(Float16 a, Float16 b) { return {float(a) + float(b)}; }
  friend Float16 operator-(Float16 a, Float16 b) { return {float(a) - float(b)}; }
  friend Float16 operator*(Float16 a, Float16 b) { return {double(float(a)) * float(b)}; }
  friend Float16 operator/(Float16 a, Float16 b) { return {double(float(a)) / float(b)}; }
  friend Float16 operator-(Float16 a) { return from_bits(a.bits() ^ 0x8000U); }
  friend bool operator==(Float16 a, Float16 b) { return float(a) == float(b); }
  friend bool operator!=(Float16 a, Float16 b) { return float(a) != float(b); }
  friend bool operator<(Float16 a, Float16 b) { return float(a) < float(b); }
  friend bool operator>(Float16 a, Float16 b) { return float(a) > float(b); }
  friend bool operator<=(Float16 a, Float16 b) { return float(a) <= float(b); }
  friend bool operator>=(Float16 a, Float16 b) { return float(a) >= float(b); }

  [[nodiscard]] std::uint16_t bits() const { return bits_; }
  static Float16 from_bits(unsigned bits) {
    Float16 h;
    h.bits_ = static_cast<std::uint16_t>(bits);
    return h;
  }
  // Returns a * b + c, rounded once. The product is exact in double.
  static Float16 fma(Float16 a, Float16 b, Float16 c) {
    const double product = double(float(a)) * double(float(b)), addend = double(float(c));
    const double sum = product + addend;
    const double part = sum - product;
    const double error = (product - (sum - part)) + (addend - part);
    if (error == 0 || !std::isfinite(sum)) return {sum};
    auto word = std::bit_cast<std::uint64_t>(sum);
    if ((word & 1U) == 0) word += (error > 0) == (sum > 0) ? 1 : std::uint64_t(-1);
    return {std::bit_cast<double>(word)};
  }

 private:
  static constexpr std::uint16_t kNaN = 0x7FFF;  // a device's conversions lose the payload of a NaN

  // Converts to float. A value that float cannot hold is rounded to odd.
  static float round_to_odd(double d) {
    float f = static_cast<float>(d);
    if (static_cast<double>(f) != d && std::isfinite(f)) {
      auto word = std::bit_cast<std::uint32_t>(f);
      if ((word & 1U) == 0)
        word += (std::fabs(static_cast<double>(f)) < std::fabs(d)) ? 1 : std::uint32_t(-1);
      f = std::bit_cast<float>(word);
    }
    return f;
  }
  std::uint16_t bits_;
};

}  // namespace vgpu

// CUDA's functions for a 16-bit type T.
#define VGPU_FLOAT16_FUNCTIONS(T)                                         \
  inline T __hadd(T a, T b) { return a + b; }                             \
  inline T __hsub(T a, T b) { return a - b; }                             \
  inline T __hmul(T a, T b) { return a * b; }                             \
  inline T __hdiv(T a, T b) { return a / b; }                             \
  inline T __hfma(T a, T b, T c) { return T::fma(a, b, c); }              \
  inline T __hneg(T a) { return -a; }                                     \
  inline bool __hisnan(T a) { return std::isnan(static_cast<float>(a)); } \
  inline int __hisinf(T a) {                                              \
    const auto f = static_cast<float>(a);                                 \
    return std::isinf(f) ? (f > 0 ? 1 : -1) : 0;                          \
  }
