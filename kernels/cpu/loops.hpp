// Walking several strided operands of one shape together.
//
// nest_of() drops dimensions of size 1, orders the others by the strides of the first operand (the
// output) and merges those that lie one after the other, for every operand at once:
//
//   out (4,3,5) contiguous, in (4,3,5) contiguous      ->  one run of 60
//   out (4,3,5) contiguous, in (5) broadcast to it     ->  12 runs of 5, in goes back each run
//
// for_each_run() then calls f(offsets, n) for each innermost run; inner(k) is operand k's stride in
// it. Runs of one call are independent, so they may be spread over threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/parallel.hpp"
#include "kernels/view.hpp"

namespace ringsmith::kernels::cpu {

template <int N>
using Offsets = std::array<std::int64_t, N>;

template <int N>
struct Nest {
  int dims = 0;  // at least 1; the last is the innermost
  std::array<std::int64_t, kMaxDims> sizes{};
  std::array<Offsets<N>, kMaxDims> strides{};

  [[nodiscard]] std::int64_t inner_size() const { return sizes[last()]; }
  [[nodiscard]] std::int64_t inner(int operand) const {
    return strides[last()][static_cast<std::size_t>(operand)];
  }
  [[nodiscard]] std::int64_t runs() const {
    std::int64_t n = 1;
    for (std::size_t d = 0; d < last(); ++d) n *= sizes[d];
    return n;
  }
  [[nodiscard]] std::size_t last() const { return static_cast<std::size_t>(dims - 1); }
};

template <int N>
Nest<N> nest_of(const std::array<const Layout*, N>& operands) {
  const Layout& out = *operands[0];
  Nest<N> nest;
  std::array<std::size_t, kMaxDims> order{};
  std::size_t kept = 0;
  for (int d = 0; d < out.dims; ++d) {
    if (out.sizes[static_cast<std::size_t>(d)] == 0) {  // nothing to do at all
      nest.dims = 1;
      return nest;
    }
    if (out.sizes[static_cast<std::size_t>(d)] != 1) order[kept++] = static_cast<std::size_t>(d);
  }
  if (kept == 0) {  // one element
    nest.dims = 1;
    nest.sizes[0] = 1;
    return nest;
  }
  std::stable_sort(order.begin(), order.begin() + kept,
                   [&](std::size_t a, std::size_t b) { return out.strides[a] > out.strides[b]; });
  for (std::size_t i = 0; i < kept; ++i) {
    const std::size_t d = order[i];
    Offsets<N> strides;
    for (std::size_t k = 0; k < N; ++k) strides[k] = operands[k]->strides[d];
    bool merges = nest.dims > 0;
    for (std::size_t k = 0; k < N && merges; ++k)
      merges = nest.strides[nest.last()][k] == strides[k] * out.sizes[d];
    if (merges) {
      nest.sizes[nest.last()] *= out.sizes[d];
      nest.strides[nest.last()] = strides;
    } else {
      nest.sizes[static_cast<std::size_t>(nest.dims)] = out.sizes[d];
      nest.strides[static_cast<std::size_t>(nest.dims)] = strides;
      ++nest.dims;
    }
  }
  return nest;
}

// Elements below which another thread costs more than it brings.
constexpr std::int64_t kParallelGrain = 16384;

// Calls f(offsets) for the runs begin .. end - 1, on this thread.
template <int N, class F>
void walk_runs(const Nest<N>& nest, std::int64_t begin, std::int64_t end, const F& f) {
  std::array<std::int64_t, kMaxDims> index{};
  Offsets<N> at{};
  std::int64_t rest = begin;  // where the first run lies
  for (std::size_t d = nest.last(); d-- > 0;) {
    index[d] = rest % nest.sizes[d];
    rest /= nest.sizes[d];
    for (std::size_t k = 0; k < N; ++k) at[k] += index[d] * nest.strides[d][k];
  }
  for (std::int64_t run = begin; run < end; ++run) {
    f(at);
    for (std::size_t d = nest.last(); d-- > 0;) {  // count on, like an odometer
      for (std::size_t k = 0; k < N; ++k) at[k] += nest.strides[d][k];
      if (++index[d] < nest.sizes[d]) break;
      for (std::size_t k = 0; k < N; ++k) at[k] -= nest.sizes[d] * nest.strides[d][k];
      index[d] = 0;
    }
  }
}

// Calls f(offsets, n) for pieces of runs that together cover everything, spread over threads if
// there are at least `grain` elements for each.
template <int N, class F>
void for_each_run(const Nest<N>& nest, const F& f, std::int64_t grain = kParallelGrain) {
  const std::int64_t n = nest.inner_size();
  if (n == 0) return;
  if (nest.dims == 1) {  // one run: cut it
    parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
      Offsets<N> at;
      for (int k = 0; k < N; ++k) at[static_cast<std::size_t>(k)] = begin * nest.inner(k);
      f(at, end - begin);
    });
    return;
  }
  parallel_for(nest.runs(), std::max<std::int64_t>(1, grain / n),
               [&](std::int64_t begin, std::int64_t end) {
                 walk_runs<N>(nest, begin, end, [&](const Offsets<N>& at) { f(at, n); });
               });
}

}  // namespace ringsmith::kernels::cpu
