// <cooperative_groups.h> of the emulator:
//
//   thread_block         all threads of a block
//   thread_block_tile    1 to 1,024 neighbouring threads. Tiles of up to 32 meet at warp functions,
//                        larger ones at a counter
//   coalesced_group      any lanes of a warp: those of a partition, or of coalesced_threads(),
//                        which here are the caller alone, because lanes run one after the other
//   grid_group           the whole grid, if it was launched by cudaLaunchCooperativeKernel
//   thread_group         any of these
//
// Groups of a cluster or of several devices are not there: such a program does not compile.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "kernels/vgpu/api/foreign_device.hpp"
#include "kernels/vgpu/api/foreign_launch.hpp"
#include "kernels/vgpu/api/tensor.hpp"
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

// Memory that tiles of more than 32 threads need on a device.
template <unsigned N = 1024>
struct block_tile_memory {
  char unused;
};
template <unsigned N>
thread_block this_thread_block(block_tile_memory<N>& /*memory*/) {
  return {};
}

class grid_group {
 public:
  // Ends the process if the launch is not cooperative.
  static void sync(vgpu::Source where = vgpu::Source::current()) {
    __syncthreads(where);
    if (thread_block::thread_rank() == 0) {
      __threadfence();
      vgpu::meet_grid(where);
      __threadfence();
    }
    __syncthreads(where);
  }
  static bool is_valid() { return vgpu::grid_is_cooperative(); }
  static unsigned long long block_rank() {
    return (static_cast<unsigned long long>(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x +
           blockIdx.x;
  }
  static unsigned long long num_blocks() {
    return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z;
  }
  static unsigned long long thread_rank() {
    return block_rank() * thread_block::size() + thread_block::thread_rank();
  }
  static unsigned long long size() { return num_blocks() * thread_block::size(); }
  static unsigned long long num_threads() { return size(); }
  static dim3 group_dim() { return gridDim; }
  static dim3 dim_blocks() { return gridDim; }
  static dim3 block_index() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
};
inline grid_group this_grid() { return {}; }

// ---- lanes of a warp ----

namespace vgpu_detail {
// Groups exchange values of up to 32 bytes, word by word: `exchange` takes and returns a word.
template <class T, class Exchange>
T by_words(T x, Exchange exchange) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 32);
  if constexpr (sizeof(T) <= 8) {
    return exchange(x);
  } else {
    unsigned long long words[(sizeof(T) + 7) / 8] = {};
    std::memcpy(words, &x, sizeof x);
    for (auto& word : words) word = exchange(word);
    std::memcpy(&x, words, sizeof x);
    return x;
  }
}
}  // namespace vgpu_detail

class coalesced_group {
 public:
  explicit coalesced_group(unsigned lanes) : lanes_(lanes) {}
  void sync(vgpu::Source where = vgpu::Source::current()) const { __syncwarp(lanes_, where); }
  [[nodiscard]] unsigned thread_rank() const {
    return static_cast<unsigned>(std::popcount(lanes_ & ((1U << vgpu::lane()) - 1)));
  }
  [[nodiscard]] unsigned size() const { return static_cast<unsigned>(std::popcount(lanes_)); }
  [[nodiscard]] unsigned num_threads() const { return size(); }
  [[nodiscard]] unsigned lanes() const { return lanes_; }
  [[nodiscard]] unsigned meta_group_rank() const { return 0; }
  [[nodiscard]] unsigned meta_group_size() const { return 1; }
  // `from` is a thread of the group.
  template <class T>
  T shfl(T x, unsigned from, vgpu::Source where = vgpu::Source::current()) const {
    const int lane = lane_of(from % size());
    return vgpu_detail::by_words(
        x, [&](auto word) { return __shfl_sync(lanes_, word, lane, 32, where); });
  }
  template <class T>
  T shfl_up(T x, unsigned delta, vgpu::Source where = vgpu::Source::current()) const {
    const unsigned rank = thread_rank();
    return shfl(x, delta <= rank ? rank - delta : rank, where);
  }
  template <class T>
  T shfl_down(T x, unsigned delta, vgpu::Source where = vgpu::Source::current()) const {
    const unsigned rank = thread_rank();
    return shfl(x, delta < size() - rank ? rank + delta : rank, where);
  }
  int any(int predicate, vgpu::Source where = vgpu::Source::current()) const {
    return __any_sync(lanes_, predicate, where);
  }
  int all(int predicate, vgpu::Source where = vgpu::Source::current()) const {
    return __all_sync(lanes_, predicate, where);
  }
  // Bit i is thread i of the group.
  unsigned ballot(int predicate, vgpu::Source where = vgpu::Source::current()) const {
    return packed(__ballot_sync(lanes_, predicate, where));
  }
  template <class T>
  unsigned match_any(T x, vgpu::Source where = vgpu::Source::current()) const {
    return packed(__match_any_sync(lanes_, x, where));
  }

 private:
  [[nodiscard]] int lane_of(unsigned rank) const {
    unsigned left = lanes_;
    for (; rank > 0; --rank) left &= left - 1;
    return std::countr_zero(left);
  }
  [[nodiscard]] unsigned packed(unsigned warp) const {
    unsigned out = 0, rank = 0;
    for (unsigned left = lanes_; left != 0; left &= left - 1, ++rank)
      out |= (warp >> std::countr_zero(left) & 1U) << rank;
    return out;
  }
  unsigned lanes_;
};
inline coalesced_group coalesced_threads() { return coalesced_group(1U << vgpu::lane()); }

// ---- tiles ----

template <unsigned N, class Parent = void>
class thread_block_tile {
  static_assert(N >= 1 && N <= 32 && (N & (N - 1)) == 0, "a tile has 1, 2, 4, ..., 1024 threads");

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
  static unsigned lanes() { return mask(); }
  template <class T>
  static T shfl(T x, int from, vgpu::Source where = vgpu::Source::current()) {
    return vgpu_detail::by_words(
        x, [&](auto word) { return __shfl_sync(mask(), word, from, N, where); });
  }
  template <class T>
  static T shfl_up(T x, unsigned delta, vgpu::Source where = vgpu::Source::current()) {
    return vgpu_detail::by_words(
        x, [&](auto word) { return __shfl_up_sync(mask(), word, delta, N, where); });
  }
  template <class T>
  static T shfl_down(T x, unsigned delta, vgpu::Source where = vgpu::Source::current()) {
    return vgpu_detail::by_words(
        x, [&](auto word) { return __shfl_down_sync(mask(), word, delta, N, where); });
  }
  template <class T>
  static T shfl_xor(T x, int lanes, vgpu::Source where = vgpu::Source::current()) {
    return vgpu_detail::by_words(
        x, [&](auto word) { return __shfl_xor_sync(mask(), word, lanes, N, where); });
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

// A tile of several warps. Its threads meet at a counter of the block, and exchange values through
// memory of the block. A block stays on its OS thread, so both are thread_local, as __shared__ is.
template <unsigned N, class Parent>
requires(N > 32) class thread_block_tile<N, Parent> {
  static_assert(N <= 1024 && (N & (N - 1)) == 0, "a tile has 1, 2, 4, ..., 1024 threads");

 public:
  thread_block_tile() = default;
  template <class Other>
  thread_block_tile(const thread_block_tile<N, Other>& /*tile*/) {}
  static unsigned thread_rank() { return thread_block::thread_rank() % N; }
  static constexpr unsigned size() { return N; }
  static constexpr unsigned num_threads() { return N; }
  static unsigned meta_group_rank() { return thread_block::thread_rank() / N; }
  static unsigned meta_group_size() { return (thread_block::size() + N - 1) / N; }
  static void sync(vgpu::Source where = vgpu::Source::current()) {
    Meeting& m = meetings[meta_group_rank()];
    const unsigned turn = __atomic_load_n(&m.turn, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&m.arrived, 1, __ATOMIC_ACQ_REL) == threads()) {
      __atomic_store_n(&m.arrived, 0, __ATOMIC_RELAXED);
      __atomic_store_n(&m.turn, turn + 1, __ATOMIC_RELEASE);
      return;
    }
    while (__atomic_load_n(&m.turn, __ATOMIC_ACQUIRE) == turn) vgpu::nanosleep(0, where);
  }
  template <class T>
  static T shfl(T x, unsigned from, vgpu::Source where = vgpu::Source::current()) {
    static_assert(sizeof(T) <= 32 && std::is_trivially_copyable_v<T>);
    const unsigned first = meta_group_rank() * N;
    std::memcpy(values[first + thread_rank()], &x, sizeof x);
    sync(where);
    std::memcpy(&x, values[first + from % N], sizeof x);
    sync(where);
    return x;
  }
  template <class T>
  static T shfl_xor(T x, unsigned lanes, vgpu::Source where = vgpu::Source::current()) {
    return shfl(x, thread_rank() ^ lanes, where);
  }
  template <class T>
  static T shfl_up(T x, unsigned delta, vgpu::Source where = vgpu::Source::current()) {
    return shfl(x, delta <= thread_rank() ? thread_rank() - delta : thread_rank(), where);
  }
  template <class T>
  static T shfl_down(T x, unsigned delta, vgpu::Source where = vgpu::Source::current()) {
    return shfl(x, delta < N - thread_rank() ? thread_rank() + delta : thread_rank(), where);
  }

 private:
  struct Meeting {
    unsigned arrived, turn;
  };
  static unsigned threads() {
    const unsigned left = thread_block::size() - meta_group_rank() * N;
    return left < N ? left : N;
  }
  static inline thread_local Meeting meetings[1024 / N];
  static inline thread_local unsigned char values[1024][32];
};

template <unsigned N, class Parent>
thread_block_tile<N, Parent> tiled_partition(const Parent& /*group*/) {
  return {};
}

// ---- any group ----

class thread_group {
 public:
  thread_group(const thread_block& /*block*/)
      : kind_(Kind::block), rank_(thread_block::thread_rank()), size_(thread_block::size()) {}
  thread_group(const grid_group& grid)
      : kind_(Kind::grid), rank_(grid.thread_rank()), size_(grid.size()) {}
  thread_group(const coalesced_group& group)
      : kind_(Kind::lanes),
        lanes_(group.lanes()),
        rank_(group.thread_rank()),
        size_(group.size()) {}
  template <unsigned N, class Parent>
  requires(N <= 32) thread_group(const thread_block_tile<N, Parent>& tile)
      : kind_(Kind::lanes), lanes_(tile.lanes()), rank_(tile.thread_rank()), size_(N) {}
  [[nodiscard]] unsigned long long thread_rank() const { return rank_; }
  [[nodiscard]] unsigned long long size() const { return size_; }
  [[nodiscard]] unsigned long long num_threads() const { return size_; }
  void sync(vgpu::Source where = vgpu::Source::current()) const {
    if (kind_ == Kind::block)
      __syncthreads(where);
    else if (kind_ == Kind::grid)
      grid_group::sync(where);
    else
      __syncwarp(lanes_, where);
  }
  [[nodiscard]] unsigned lanes() const { return lanes_; }  // 0: more than a warp

 private:
  enum class Kind { block, grid, lanes } kind_;
  unsigned lanes_ = 0;
  unsigned long long rank_, size_;
};

// Tiles whose size is known at run time. `size` is a power of two, at most 32.
template <class Parent>
thread_group tiled_partition(const Parent& group, unsigned size) {
  const auto rank = static_cast<unsigned>(group.thread_rank());
  const unsigned first = vgpu::lane() - rank % size;
  const auto left = static_cast<unsigned>(group.size()) - rank / size * size;
  const unsigned threads = left < size ? left : size;
  return coalesced_group((threads >= 32 ? ~0U : (1U << threads) - 1) << first);
}
// The threads of a group of at most 32 that have the same predicate or label.
template <class Group>
coalesced_group binary_partition(const Group& group, bool predicate,
                                 vgpu::Source where = vgpu::Source::current()) {
  const unsigned yes = __ballot_sync(group.lanes(), predicate ? 1 : 0, where) & group.lanes();
  return coalesced_group(predicate ? yes : group.lanes() & ~yes);
}
template <class Group, class Label>
coalesced_group labeled_partition(const Group& group, Label label,
                                  vgpu::Source where = vgpu::Source::current()) {
  return coalesced_group(__match_any_sync(group.lanes(), label, where));
}

template <class Group>
void sync(const Group& group, vgpu::Source where = vgpu::Source::current()) {
  group.sync(where);
}
template <class Group>
unsigned thread_rank(const Group& group) {
  return static_cast<unsigned>(group.thread_rank());
}

}  // namespace cooperative_groups
