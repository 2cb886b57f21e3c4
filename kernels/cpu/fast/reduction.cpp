// Sums with many running totals, which are one vector register or several: an addition waits four
// cycles for its predecessor, so that one total would leave most of the machine idle. Totals are
// flushed every kBlock terms, so that rounding grows with n / kBlock + kBlock / kLanes, not with n.
#include "kernels/cpu/fast/reduction.hpp"

#include <algorithm>
#include <array>

#include "kernels/cpu/reduction_loops.hpp"

namespace ringsmith::kernels::cpu::fast {

namespace {

constexpr std::int64_t kLanes = 64;

template <class T>
T fold(std::array<T, kLanes>& lane) {  // in halves
  for (std::size_t half = kLanes / 2; half > 0; half /= 2)
    for (std::size_t k = 0; k < half; ++k) lane[k] += lane[k + half];
  return lane[0];
}

template <class T, class Term>
T blocked_sum(std::int64_t n, const Term& term) {
  constexpr std::int64_t kBlock = 4096;
  T total{};
  std::int64_t i = 0;
  while (i + kLanes <= n) {
    std::array<T, kLanes> lane{};
    for (const std::int64_t end = std::min(n, i + kBlock); i + kLanes <= end; i += kLanes)
      for (std::int64_t k = 0; k < kLanes; ++k) lane[static_cast<std::size_t>(k)] += term(i + k);
    total += fold(lane);
  }
  std::array<T, kLanes> tail{};  // a short sum is a tree as well: 6 roundings deep, not 63
  for (std::size_t k = 0; i < n; ++i, ++k) tail[k] = term(i);
  return total + fold(tail);
}

template <class T>
struct FastSums {
  static constexpr bool kParallel = true;
  static T run(const T* x, std::int64_t n, std::int64_t stride) {
    if (stride == 1) return blocked_sum<T>(n, [=](std::int64_t i) { return x[i]; });
    return blocked_sum<T>(n, [=](std::int64_t i) { return x[i * stride]; });
  }
  static void columns(Matrix<const T> x, std::span<T> out, Store store) {
    kernels::cpu::column_sum(x, out, store);
  }
};

}  // namespace

template <class T>
void sum(View<T> out, View<const T> x) {
  sum_with<FastSums<T>>(out, x);
}

template void sum<float>(View<float>, View<const float>);
template void sum<double>(View<double>, View<const double>);

}  // namespace ringsmith::kernels::cpu::fast
