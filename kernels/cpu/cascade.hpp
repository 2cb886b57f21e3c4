// Sums in the order in which PyTorch's scalar CPU build (ATEN_CPU_CAPABILITY=default) adds. The
// oracles use them, so that their sums have PyTorch's bits.
//
// Adding n floats one after the other accumulates up to n roundings. A cascade keeps four running
// sums: after every `step` terms level 0 is carried into level 1, after every step^2 terms level 1
// into level 2, and so on. A term is rounded at most about 4 step times, where step is 16 or, for
// large n, about n^(1/4).
//
//   terms ->  [level 0] --16 terms--> [level 1] --16 carries--> [level 2] --> [level 3]
//
// PyTorch builds three kinds of sums on cascades: a strided row (four interleaved cascades), a
// contiguous row (one strided row per lane of a 32-byte vector) and the columns of a matrix.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace ringsmith::kernels::cpu {

template <class T, class Term>
T cascade_sum(std::int64_t n, const Term& term) {
  constexpr std::size_t kLevels = 4;
  const int log2_ceil = n <= 1 ? 0 : std::bit_width(static_cast<std::uint64_t>(n - 1));
  const int power = std::max(4, log2_ceil / static_cast<int>(kLevels));
  const std::int64_t step = std::int64_t{1} << power;
  std::array<T, kLevels> level{};
  std::int64_t i = 0;
  while (i + step <= n) {
    for (std::int64_t j = 0; j < step; ++j, ++i) level[0] += term(i);
    for (std::size_t up = 1; up < kLevels; ++up) {
      level[up] += level[up - 1];
      level[up - 1] = T{};
      const std::int64_t digit = (i >> (up * static_cast<std::size_t>(power))) & (step - 1);
      if (digit != 0) break;
    }
  }
  for (; i < n; ++i) level[0] += term(i);
  for (std::size_t up = 1; up < kLevels; ++up) level[0] += level[up];
  return level[0];
}

// Sum of a strided row, by four interleaved cascades over term(4 i + k). The remaining terms are
// added to the first cascade's sum.
template <class T, class Term>
T row_sum(std::int64_t n, const Term& term) {
  const std::int64_t quarter = n / 4;
  std::array<T, 4> part;
  for (std::int64_t k = 0; k < 4; ++k)
    part[static_cast<std::size_t>(k)] =
        cascade_sum<T>(quarter, [&](std::int64_t i) { return term(4 * i + k); });
  for (std::int64_t i = 4 * quarter; i < n; ++i) part[0] += term(i);
  for (std::size_t k = 1; k < 4; ++k) part[0] += part[k];
  return part[0];
}

// Number of lanes in PyTorch's 32-byte vector.
template <class T>
constexpr std::int64_t kTorchLanes = 32 / static_cast<std::int64_t>(sizeof(T));

// Sum of a contiguous row. Adds the elements beyond the last whole vector first, then one row_sum
// per lane, both in order.
template <class T, class Term>
T contiguous_sum(std::int64_t n, const Term& term) {
  constexpr std::int64_t kLanes = kTorchLanes<T>;
  if (n < kLanes) return row_sum<T>(n, term);
  T sum{};
  for (std::int64_t i = n / kLanes * kLanes; i < n; ++i) sum += term(i);
  for (std::int64_t lane = 0; lane < kLanes; ++lane)
    sum += row_sum<T>(n / kLanes, [&](std::int64_t i) { return term(kLanes * i + lane); });
  return sum;
}

// out[c] = sum over r of term(r, c). PyTorch sums four vectors of columns together, one cascade per
// column, and the remaining columns as strided rows.
template <class T, class Term>
void column_sums(std::int64_t rows, std::int64_t columns, const Term& term, T* out) {
  const std::int64_t lanes = columns >= kTorchLanes<T> ? kTorchLanes<T> : 1;
  const std::int64_t cascaded = columns / (4 * lanes) * (4 * lanes);
  for (std::int64_t c = 0; c < columns; ++c) {
    const auto down = [&](std::int64_t r) { return term(r, c); };
    out[c] = c < cascaded ? cascade_sum<T>(rows, down) : row_sum<T>(rows, down);
  }
}

// Adds the terms into eight lanes (four for double), then the lanes from left to right. PyTorch's
// softmax and log_softmax sum this way (vec::reduce_all).
template <class T, class Term>
T lane_sum(std::int64_t n, const Term& term) {
  constexpr std::int64_t kLanes = kTorchLanes<T>;
  std::array<T, static_cast<std::size_t>(kLanes)> lane{};
  const std::int64_t used = std::min(n, kLanes);
  for (std::int64_t i = 0; i < used; ++i) lane[static_cast<std::size_t>(i)] = term(i);
  for (std::int64_t i = kLanes; i < n; ++i) lane[static_cast<std::size_t>(i % kLanes)] += term(i);
  if (n == 0) return T{};
  T sum = lane[0];
  for (std::int64_t i = 1; i < used; ++i) sum += lane[static_cast<std::size_t>(i)];
  return sum;
}

// The loss of a batch (nll_loss), by a cascade of eight levels. The index of the term just added
// decides whether to carry, so index 0 carries through all levels. Skipped indices neither add nor
// carry.
template <class T, class Term, class Skip>
T loss_sum(std::int64_t n, const Term& term, const Skip& skip) {
  constexpr std::size_t kLevels = 8;
  const int log2_ceil = n <= 1 ? 0 : std::bit_width(static_cast<std::uint64_t>(n - 1));
  const int power = std::max(4, log2_ceil / static_cast<int>(kLevels));
  const std::int64_t mask = (std::int64_t{1} << power) - 1;
  std::array<T, kLevels> level{};
  for (std::int64_t i = 0; i < n; ++i) {
    if (skip(i)) continue;
    level[0] += term(i);
    for (std::size_t up = 1; up < kLevels; ++up) {
      if (((i >> ((up - 1) * static_cast<std::size_t>(power))) & mask) != 0) break;
      level[up] += level[up - 1];
      level[up - 1] = T{};
    }
  }
  T sum = level[0];
  for (std::size_t up = 1; up < kLevels; ++up) sum += level[up];
  return sum;
}

}  // namespace ringsmith::kernels::cpu
