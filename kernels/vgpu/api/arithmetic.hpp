// The PTX instructions that kernels/cuda/intrinsics.cuh uses on a device.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/half.hpp"

namespace vgpu {

// ex2.approx.ftz.f32: subnormal operands and results are 0. Here the result is the C library's; on
// a device its relative error may be 2^-22.
inline float exp2_fast(float x) {
  const float y = std::exp2(x);
  return y < std::numeric_limits<float>::min() ? 0.0F : y;
}

// cvt.rn.bf16x2.f32: `high` is in the upper half of the result. A NaN becomes 0x7fff.
inline std::uint32_t two_halves(float low, float high) {
  const auto half = [](float x) -> std::uint32_t {
    return std::isnan(x) ? 0x7fffU : ringsmith::bf16(x).bits;
  };
  return half(high) << 16 | half(low);
}

}  // namespace vgpu
