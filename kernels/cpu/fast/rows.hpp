// Reductions over a contiguous row. The lanes are written out, because a compiler may not reorder
// additions without -ffast-math.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ringsmith::kernels::cpu {
namespace {

inline constexpr std::size_t kRowLanes = 16;
using RowLanes = std::array<float, kRowLanes>;

template <class Term>
[[maybe_unused, gnu::always_inline]] inline float row_sum_of(std::int64_t n, const Term& term) {
  RowLanes lane{};
  std::int64_t j = 0;
  for (; j + static_cast<std::int64_t>(kRowLanes) <= n; j += kRowLanes)
    for (std::size_t k = 0; k < kRowLanes; ++k) lane[k] += term(j + static_cast<std::int64_t>(k));
  for (std::size_t k = 0; j < n; ++j, ++k) lane[k] += term(j);
  for (std::size_t width = kRowLanes / 2; width > 0; width /= 2)
    for (std::size_t k = 0; k < width; ++k) lane[k] += lane[k + width];
  return lane[0];
}

// Returns the largest of n >= 1 elements, or an arbitrary element of the row if one is NaN. The
// softmax is NaN nevertheless, because the sum of the exponentials is NaN.
[[maybe_unused, gnu::always_inline]] inline float row_max_of(std::int64_t n, const float* x) {
  const auto larger = [](float old, float value) { return value > old ? value : old; };
  RowLanes lane;
  lane.fill(x[0]);
  std::int64_t j = 0;
  for (; j + static_cast<std::int64_t>(kRowLanes) <= n; j += kRowLanes)
    for (std::size_t k = 0; k < kRowLanes; ++k)
      lane[k] = larger(lane[k], x[j + static_cast<std::int64_t>(k)]);
  for (std::size_t k = 0; j < n; ++j, ++k) lane[k] = larger(lane[k], x[j]);
  for (std::size_t width = kRowLanes / 2; width > 0; width /= 2)
    for (std::size_t k = 0; k < width; ++k) lane[k] = larger(lane[k], lane[k + width]);
  return lane[0];
}

}  // namespace
}  // namespace ringsmith::kernels::cpu
