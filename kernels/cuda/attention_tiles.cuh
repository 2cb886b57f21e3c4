// Tiles of the attention kernels in shared memory, and their products in registers.
//
// Forward's products have one form. A and B are stored with the summation index first, and a thread
// computes sums[r][c] += A[k][row + r] * B[k][column + c] for its kR rows and kC columns: per k, it
// loads kR + kC numbers from shared memory for kR kC multiply-adds.
#pragma once

#include "kernels/attention.hpp"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/strided.cuh"
#include "kernels/cuda/tile_product.cuh"

namespace ringsmith::kernels::cuda {

constexpr int kTileThreads = 128;
constexpr int kTilePack = 4;

template <int rows, int columns>
struct alignas(16) Tile {
  static constexpr int kRows = rows, kColumns = columns;
  float at[rows][columns + kTilePack];  // padded: neighbours in a column are in different banks
};

template <int kR, int kC>
using Sums = float[kR][kC];

// sums += A^T B over all rows of the tiles, for the block [row ..][column ..].
template <int kR, int kC, class A, class B>
__device__ void add_product(Sums<kR, kC>& sums, const A& a_tile, int row, const B& b_tile,
                            int column) {
  static_assert(A::kRows == B::kRows);
  for (int k = 0; k < A::kRows; ++k) {
    float a[kR], b[kC];
#pragma unroll
    for (int r = 0; r < kR; ++r) a[r] = a_tile.at[k][row + r];
#pragma unroll
    for (int c = 0; c < kC; ++c) b[c] = b_tile.at[k][column + c];
#pragma unroll
    for (int c = 0; c < kC; ++c)
#pragma unroll
      for (int r = 0; r < kR; ++r) sums[r][c] = multiply_add(a[r], b[c], sums[r][c]);
  }
}

// Consecutive tokens of one head: `tokens` of `dim` elements, the first at `data`.
struct HeadRows {
  const float* data;
  std::int64_t stride, tokens, dim;
  bool packs;  // may be read in packs

  __device__ Pack<float, kTilePack> load(std::int64_t token, std::int64_t d) const {
    const float* const from = data + token * stride + d;
    if (packs && token < tokens && d + kTilePack <= dim) return load_pack<kTilePack>(from, 0);
    Pack<float, kTilePack> pack;
    for (int q = 0; q < kTilePack; ++q) pack.at[q] = token < tokens && d + q < dim ? from[q] : 0;
    return pack;
  }
};

// Loads tile[token][d], with zeros beyond the end.
template <int threads = kTileThreads, class To>
__device__ void load_rows(To& tile, const HeadRows& rows) {
  constexpr int kPacks = To::kColumns / kTilePack;
  for (int e = static_cast<int>(threadIdx.x); e < To::kRows * kPacks; e += threads) {
    const int token = e / kPacks, d = e % kPacks * kTilePack;
    store_pack(&tile.at[token][d], 0, rows.load(token, d));
  }
}

// Loads tile[d][token]. Neighbouring threads have neighbouring tokens, so their stores are
// contiguous. The rest of a loaded cache line is used by other warps and in the next iterations.
template <class To>
__device__ void load_columns(To& tile, const HeadRows& rows) {
  for (int e = static_cast<int>(threadIdx.x); e < To::kRows / kTilePack * To::kColumns;
       e += kTileThreads) {
    const int token = e % To::kColumns, d = e / To::kColumns * kTilePack;
    const Pack<float, kTilePack> pack = rows.load(token, d);
    for (int q = 0; q < kTilePack; ++q) tile.at[d + q][token] = pack.at[q];
  }
}

template <class T>
bool rows_in_packs(const Heads<T>& h) {
  return aligned_for(h.data, kTilePack) && h.batch_stride % kTilePack == 0 &&
         h.head_stride % kTilePack == 0 && h.token_stride % kTilePack == 0;
}

// The head and the tile of its rows on which a block works. With causal attention, late queries
// have the most work, so they start first (late_first).
struct TileJob {
  std::int64_t batch, head, first;  // first: the tile's first row

  __device__ TileJob(std::int64_t job, const AttentionShape& s, std::int64_t tile,
                     bool late_first) {
    const std::int64_t tiles = ceil_div(s.tokens, tile);
    // Heads change fastest, so that blocks that run together have the same amount of work.
    head = take_digit(job, s.heads);
    batch = take_digit(job, s.batch);
    first = (late_first ? tiles - 1 - job : job) * tile;
  }
};
inline std::int64_t tile_jobs(const AttentionShape& s, std::int64_t tile) {
  return s.batch * s.heads * ceil_div(s.tokens, tile);
}

__device__ inline HeadRows head_rows(const Heads<const float>& h, const TileJob& job,
                                     const AttentionShape& s, std::int64_t first, bool packs) {
  return {h.head(job.batch, job.head) + first * h.token_stride, h.token_stride, s.tokens - first,
          s.dim, packs};
}

// --- the tiled versions; they return false if dim is too large for them (above 128)

bool attention_tiled(Heads<const float> q, Heads<const float> k, Heads<const float> v,
                     Heads<float> out, RowStatistic<float>* statistics, const AttentionShape& s);
// row_dots: for each row, the dot product of dout and out.
bool attention_backward_tiled(Heads<const float> dout, const AttentionSaved<float>& saved,
                              const float* row_dots, Heads<float> dq, Heads<float> dk,
                              Heads<float> dv, const AttentionShape& s);

}  // namespace ringsmith::kernels::cuda
