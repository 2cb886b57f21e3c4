// Shared by __half and __nv_bfloat16: storage in 16 bits, and arithmetic that rounds once, to
// nearest even. Float is enough for sums, because it has at least 2p + 2 digits for both types.
// Products and quotients of bf16 can be so small that float would round them, too, so they use
// double, as does a fused multiply-add. If a value does not fit into double or float, its last bit
// is made odd, so that only the last rounding has an effect.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/half.hpp"

namespace vgpu {

// Storage, ringsmith::f16 or ringsmith::bf16, has the conversions. The default constructor leaves
// the value undefined, as on the device.
template <class Storage>
class Float16 {
 public:
  Float16() = default;
  Float16(float f) : bits_(Storage(f).bits) {}
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
  // a * b + c, rounded once. The product is exact in double. If the sum does not fit into double,
  // its last bit is made odd.
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
  // If float cannot hold the value, makes its last bit odd.
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
