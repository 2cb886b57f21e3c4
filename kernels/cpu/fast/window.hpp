#pragma once

#include <algorithm>
#include <cstdint>

namespace ringsmith::kernels::cpu::fast {

struct Range {
  std::int64_t begin = 0, end = 0;
};

// The outputs o in [0, outputs) for which the position o * stride + shift is in [0, size).
inline Range inside(std::int64_t size, std::int64_t outputs, std::int64_t stride,
                    std::int64_t shift) {
  const std::int64_t begin = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
  const std::int64_t end = size - 1 - shift < 0 ? 0 : (size - 1 - shift) / stride + 1;
  const Range r{std::min(begin, outputs), std::min(end, outputs)};
  return {r.begin, std::max(r.begin, r.end)};
}

}  // namespace ringsmith::kernels::cpu::fast
