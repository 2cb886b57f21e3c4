// Computes the largest element of a row and the sum of exp(x - largest), in one pass over the row.
// Whenever the largest element grows, the sum so far is scaled down (Milakov and Gimelshein, 2018).
//
//   x         1      3          2
//   largest   1      3          3
//   sum       1      e^-2 + 1   e^-2 + 1 + e^-1
//
// Used by softmax and cross entropy for rows that do not fit the registers of a team.
#pragma once

#include <limits>

#include "kernels/cuda/elementwise_math.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/tree.cuh"

namespace ringsmith::kernels::cuda {

template <class T>
constexpr T kLowest = -std::numeric_limits<T>::infinity();

template <class T>
struct MaxAndSum {  // sum of exp(x - largest) over the elements so far
  T largest = kLowest<T>, sum = 0;

  // Updates `largest` once for the whole group, so that the exponentials are independent.
  template <int N>
  __device__ void add(const Pack<T, N>& group) {
    T most = largest;
    for (int k = 0; k < N; ++k) most = group.at[k] > most ? group.at[k] : most;
    if (most > largest) {
      sum *= exp_of(largest - most);
      largest = most;
    }
    for (int k = 0; k < N; ++k)  // the equal case avoids infinity minus infinity
      sum += group.at[k] == largest ? T(1) : exp_of(group.at[k] - largest);
  }
};

// All threads of a block of kThreads must call this for the same row of n elements, and all get the
// result. If the maximum is infinite, the sum is NaN, as if it were computed by exp(inf - inf).
// 16-bit elements are widened when they are loaded.
template <class S>
__device__ MaxAndSum<Wide<S>> max_and_sum(const S* x, std::int64_t n) {
  using T = Wide<S>;
  constexpr int kGroup = 4;
  MaxAndSum<T> seen;
  std::int64_t i = threadIdx.x;
  if (aligned_for(x, kPack<S>)) {
    for (; i < n / kPack<S>; i += kThreads) seen.add(widened(load_pack<kPack<S>>(x, i)));
    i = n / kPack<S> * kPack<S> + threadIdx.x;
  } else {
    for (; i + (kGroup - 1) * kThreads < n; i += kGroup * kThreads) {
      Pack<T, kGroup> group;
      for (int k = 0; k < kGroup; ++k) group.at[k] = widened(x[i + k * kThreads]);
      seen.add(group);
    }
  }
  for (; i < n; i += kThreads) seen.add(Pack<T, 1>{{widened(x[i])}});
  const T largest = block_reduce<kThreads>(seen.largest, Larger{});
  const T fitted = seen.largest == largest ? seen.sum : seen.sum * exp_of(seen.largest - largest);
  const T nothing = largest - largest;  // NOLINT(misc-redundant-expression)
  return {largest, block_reduce<kThreads>(fitted, Plus{}) + nothing};
}

}  // namespace ringsmith::kernels::cuda
