// A run is summed in 32 partial sums. An addition waits four cycles for its predecessor, so a
// single sum would leave most of the processor idle. The partial sums are double, so that a sum of
// floats is accurate even if its terms nearly cancel: a loss or the gradient of a scale may be the
// sum of a million terms.
#include "kernels/reduction.hpp"

#include <array>

#include "kernels/cpu/reduction_loops.hpp"

namespace ringsmith::kernels::cpu::fast {

namespace {

template <class T, class Term>
T lane_sum(std::int64_t n, const Term& term) {
  constexpr std::int64_t kLanes = 32;
  std::array<double, kLanes> lane{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t k = 0; k < kLanes; ++k) lane[static_cast<std::size_t>(k)] += term(i + k);
  for (std::size_t k = 0; i < n; ++i, ++k) lane[k] += term(i);
  for (std::size_t half = kLanes / 2; half > 0; half /= 2)
    for (std::size_t k = 0; k < half; ++k) lane[k] += lane[k + half];
  return static_cast<T>(lane[0]);
}

template <class T>
struct FastSums {
  static constexpr bool kParallel = true;
  static T run(const T* x, std::int64_t n, std::int64_t stride) {
    if (stride == 1) return lane_sum<T>(n, [=](std::int64_t i) { return x[i]; });
    return lane_sum<T>(n, [=](std::int64_t i) { return x[i * stride]; });
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

RINGSMITH_FLOAT_AND_DOUBLE(sum)

}  // namespace ringsmith::kernels::cpu::fast
