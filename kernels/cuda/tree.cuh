// Reductions over a warp and over a block, as trees that never change shape.
//
//   warp    five exchanges with the lanes 16, 8, 4, 2, 1 away: every lane ends with the total
//   block   the warps' totals, via shared memory: all threads combine them in order of the warps
//
// Addition commutes, so both partners of an exchange get the same bits. All threads of the warp or
// block must call these functions. Otherwise the kernel hangs.
#pragma once

#include "kernels/cuda/grid.cuh"

namespace ringsmith::kernels::cuda {

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

// The larger value. A NaN on either side wins.
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};

// The value of the lane number (this lane xor `lanes`). Overloaded for structs.
template <class T>
__device__ T from_lane_xor(T value, int lanes) {
  return __shfl_xor_sync(0xffffffffU, value, lanes);
}

template <class T, class Op>
__device__ T warp_reduce(T value, Op op) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value = op(value, from_lane_xor(value, distance));
  return value;
}

// kSize is the number of threads: a multiple of 32, and the block's whole x dimension.
template <int kSize, class T, class Op>
__device__ T block_reduce(T value, Op op) {
  constexpr int kWarps = kSize / kWarp;
  __shared__ T totals[kWarps];
  value = warp_reduce(value, op);
  if constexpr (kWarps == 1) return value;
  __syncthreads();  // the totals of the previous call have been read
  if (threadIdx.x % kWarp == 0) totals[threadIdx.x / kWarp] = value;
  __syncthreads();
  T total = totals[0];
  for (int w = 1; w < kWarps; ++w) total = op(total, totals[w]);
  return total;
}

// A team is the group of threads that works on one row: a warp or a block.
template <int kSize, class T, class Op>
__device__ T team_reduce(T value, Op op) {
  if constexpr (kSize == kWarp)
    return warp_reduce(value, op);
  else
    return block_reduce<kSize>(value, op);
}

}  // namespace ringsmith::kernels::cuda
