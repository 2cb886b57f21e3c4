// Loops over the runs of a Nest (kernels/nest.hpp). inner(k) is the stride of operand k within a
// run.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/nest.hpp"
#include "kernels/parallel.hpp"

namespace ringsmith::kernels::cpu {

// Calls f(offsets) for the runs begin .. end - 1, on this thread.
template <int N, class F>
void walk_runs(const Nest<N>& nest, std::int64_t begin, std::int64_t end, const F& f) {
  std::array<std::int64_t, kMaxDims> index{};
  Offsets<N> at{};
  std::int64_t rest = begin;  // the number of the first run, split into its index
  for (std::size_t d = nest.last(); d-- > 0;) {
    index[d] = rest % nest.sizes[d];
    rest /= nest.sizes[d];
    for (std::size_t k = 0; k < N; ++k) at[k] += index[d] * nest.strides[d][k];
  }
  for (std::int64_t run = begin; run < end; ++run) {
    f(at);
    for (std::size_t d = nest.last(); d-- > 0;) {  // advance like an odometer
      for (std::size_t k = 0; k < N; ++k) at[k] += nest.strides[d][k];
      if (++index[d] < nest.sizes[d]) break;
      for (std::size_t k = 0; k < N; ++k) at[k] -= nest.sizes[d] * nest.strides[d][k];
      index[d] = 0;
    }
  }
}

// Calls f(offsets, n) for pieces of runs that together cover all elements. Uses about one thread
// for every `grain` elements, but at most threads().
template <int N, class F>
void for_each_run(const Nest<N>& nest, const F& f, std::int64_t grain = kParallelGrain) {
  const std::int64_t n = nest.inner_size();
  if (n == 0) return;
  if (nest.dims == 1) {  // one run: split it
    parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
      Offsets<N> at;
      for (int k = 0; k < N; ++k) at[static_cast<std::size_t>(k)] = begin * nest.inner(k);
      f(at, end - begin);
    });
    return;
  }
  parallel_for(nest.runs(), grain_of(n, grain), [&](std::int64_t begin, std::int64_t end) {
    walk_runs<N>(nest, begin, end, [&](const Offsets<N>& at) { f(at, n); });
  });
}

}  // namespace ringsmith::kernels::cpu
