// <cooperative_groups.h> of the emulator: a block, and tiles of 1 to 32 neighbouring threads.
// Groups of a whole grid, a cluster or several devices, and coalesced groups, are not there: such a
// program does not compile.
#pragma once

#include <type_traits>

#include "kernels/vgpu/api/thread.hpp"

namespace cooperative_groups {

class thread_block {
 public:
  static void sync(vgpu::Source where = vgpu::Source::current()) { __syncthreads(where); }
  static unsigned thread_rank() {
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  }
  static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned num_threads() { return size(); }
  static dim3 group_index() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
  static dim3 thread_index() { return {threadIdx.x, threadIdx.y, threadIdx.z}; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }

template <unsigned N, class Parent = void>
class thread_block_tile {
  static_assert(N >= 1 && N <= 32 && (N & (N - 1)) == 0, "a tile has 1, 2, 4, 8, 16 or 32 threads");

 public:
  thread_block_tile() = default;
  template <class Other>  // from a tile whose type names another parent, or none
  thread_block_tile(const thread_block_tile<N, Other>& /*tile*/) {}
  static void sync(vgpu::Source where = vgpu::Source::current()) { __syncwarp(mask(), where); }
  static unsigned thread_rank() { return thread_block::thread_rank() % N; }
  static constexpr unsigned size() { return N; }
  static constexpr unsigned num_threads() { return N; }
  static unsigned meta_group_rank() { return thread_block::thread_rank() / N; }
  static unsigned meta_group_size() { return (thread_block::size() + N - 1) / N; }
  template <class T>
  static T shfl(T x, int from, vgpu::Source where = vgpu::Source::current()) {
    return __shfl_sync(mask(), x, from, N, where);
  }
  template <class T>
  static T shfl_up(T x, unsigned delta, vgpu::Source where = vgpu::Source::current()) {
    return __shfl_up_sync(mask(), x, delta, N, where);
  }
  template <class T>
  static T shfl_down(T x, unsigned delta, vgpu::Source where = vgpu::Source::current()) {
    return __shfl_down_sync(mask(), x, delta, N, where);
  }
  template <class T>
  static T shfl_xor(T x, int lanes, vgpu::Source where = vgpu::Source::current()) {
    return __shfl_xor_sync(mask(), x, lanes, N, where);
  }
  static int any(int predicate, vgpu::Source where = vgpu::Source::current()) {
    return ballot(predicate, where) != 0 ? 1 : 0;
  }
  static int all(int predicate, vgpu::Source where = vgpu::Source::current()) {
    return ballot(predicate == 0, where) == 0 ? 1 : 0;
  }
  // Bit i is thread i of the tile.
  static unsigned ballot(int predicate, vgpu::Source where = vgpu::Source::current()) {
    return (__ballot_sync(mask(), predicate, where) & mask()) >> first_lane();
  }

 private:
  static unsigned first_lane() { return thread_block::thread_rank() % 32 / N * N; }
  // The tile's lanes of the warp; the last tile of a block may be incomplete.
  static unsigned mask() {
    const unsigned first = thread_block::thread_rank() / N * N;
    const unsigned left = thread_block::size() - first, threads = left < N ? left : N;
    return (threads == 32 ? ~0U : (1U << threads) - 1) << first_lane();
  }
};

template <unsigned N, class Parent>
thread_block_tile<N, Parent> tiled_partition(const Parent& /*group*/) {
  return {};
}
template <class Group>
void sync(const Group& group, vgpu::Source where = vgpu::Source::current()) {
  group.sync(where);
}

}  // namespace cooperative_groups
