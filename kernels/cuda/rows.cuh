// Kernels that need a row several times read it from memory once, into registers.
//
//   lane      0    1    2  ...  31   0    1    2 ...        a team of 32 lanes (a warp) or of 256
//   elements  0-3  4-7  8-11 ...     128- ...               (a block) holds a row in packs
//
// A lane holds up to kRowPacks packs, i.e. 512 floats in a warp and 4096 in a block. Longer rows
// are read again in every pass, mostly from L2, by a version of the family that supports any
// length.
#pragma once

#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/tree.cuh"

namespace ringsmith::kernels::cuda {

constexpr int kRowPacks = 4;

// Length of the longest row that a team can hold.
template <class T>
constexpr std::int64_t team_capacity(int team, int packs = kRowPacks) {
  return std::int64_t{team} * packs * kPack<T>;
}

// A thread's share of a row of n elements. `packs`: the row may be read and written in packs. In
// memory the row may be of a 16-bit type, which is widened by load() and rounded by store().
template <class T, int kTeam, int kPacks = kRowPacks>
struct RowShare {
  static constexpr int N = kPack<T>;
  static constexpr int kApart = kTeam * N;  // elements from a pack of this lane to the next
  T at[kPacks][N];

  // The number of elements from this lane's first one to the end of the row. A row that a team
  // holds is short, so comparisons with this number take one instruction of 32 bits.
  [[nodiscard]] static __device__ int left_from(std::int64_t n, int lane) {
    return static_cast<int>(n) - lane * N;
  }

  // Calls f(element, its column) for all elements of this share.
  template <class F>
  __device__ void each(std::int64_t n, int lane, const F& f) {
    const int left = left_from(n, lane);
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
#pragma unroll
      for (int k = 0; k < N; ++k)
        if (p * kApart + k < left) f(at[p][k], std::int64_t{lane * N + p * kApart + k});
  }
  // Like each(), if the row consists of whole packs: a comparison per pack, not per element.
  template <class F>
  __device__ void each_in_packs(std::int64_t n, int lane, const F& f) {
    const int left = left_from(n, lane);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (p * kApart >= left) continue;
#pragma unroll
      for (int k = 0; k < N; ++k) f(at[p][k], std::int64_t{lane * N + p * kApart + k});
    }
  }
  // Calls f for the corresponding elements of this share and the others, without the column and
  // without a comparison: also for the elements beyond the row, which load() leaves as they were.
  template <class F, class... Shares>
  __device__ void with(const F& f, Shares&... others) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
#pragma unroll
      for (int k = 0; k < N; ++k) f(at[p][k], others.at[p][k]...);
  }
  template <class S>
  __device__ void load(const S* row, std::int64_t n, int lane, bool packs) {
    if (!packs) return each(n, lane, [=](T& x, std::int64_t i) { x = widened(row[i]); });
    const int left = left_from(n, lane);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (p * kApart >= left) continue;
      const Pack<T, N> loaded = widened(load_pack<N>(row, lane + std::int64_t{p} * kTeam));
      for (int k = 0; k < N; ++k) at[p][k] = loaded.at[k];
    }
  }
  template <class S>
  __device__ void store(S* row, std::int64_t n, int lane, bool packs) {
    if (!packs) return each(n, lane, [=](T& x, std::int64_t i) { row[i] = static_cast<S>(x); });
    const int left = left_from(n, lane);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (p * kApart >= left) continue;
      Pack<T, N> out;
      for (int k = 0; k < N; ++k) out.at[k] = at[p][k];
      store_pack(row, lane + std::int64_t{p} * kTeam, narrowed<S>(out));
    }
  }
  // The sum over the row of f(element, column), which every lane gets.
  template <class F>
  __device__ T sum(std::int64_t n, int lane, const F& f) {
    T total = 0;
    each(n, lane, [&](T& x, std::int64_t i) { total += f(x, i); });
    return team_reduce<kTeam>(total, Plus{});
  }
};

// True if a row of n elements may be read and written in packs of kPack<T> elements at each pointer
// that is not null.
template <class T, class... S>
bool rows_in_packs(std::int64_t n, const S*... rows) {
  return n % kPack<T> == 0 && (aligned_for(rows, kPack<T>) && ...);
}

// The team of this thread, and its position there.
template <int kTeam>
struct Team {
  int lane = static_cast<int>(threadIdx.x) % kTeam;
  std::int64_t row, stride;  // the team's first row, and the distance to its next row
  __device__ Team()
      : row(std::int64_t{blockIdx.x} * (kThreads / kTeam) + threadIdx.x / kTeam),
        stride(std::int64_t{gridDim.x} * (kThreads / kTeam)) {}
};

// A team of kTeam threads with kPacks packs each.
template <int kTeam_, int kPacks_>
struct TeamSize {
  static constexpr int kTeam = kTeam_, kPacks = kPacks_;
};
// Calls f with the team that holds a row of n elements; false if no team does. A thread with one
// pack needs few registers, so that a multiprocessor has many rows in flight.
template <class T, int kWarpPacks, class F>
bool with_team(std::int64_t n, const F& f) {
  if (n <= team_capacity<T>(kWarp, kWarpPacks))
    f(TeamSize<kWarp, kWarpPacks>{});
  else if (n <= team_capacity<T>(kThreads, 1))
    f(TeamSize<kThreads, 1>{});
  else if (n <= team_capacity<T>(kThreads))
    f(TeamSize<kThreads, kRowPacks>{});
  else
    return false;
  return true;
}

// Calls f(row, lane) for the rows of this thread's team.
template <int kTeam, class F>
__device__ void each_row(std::int64_t rows, const F& f) {
  const Team<kTeam> team;
  for (std::int64_t r = team.row; r < rows; r += team.stride) f(r, team.lane);
}

}  // namespace ringsmith::kernels::cuda
