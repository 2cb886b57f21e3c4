// Tiles of the attention kernels: in shared memory, with products of two of them in registers.
//
// All products are written in one form: A and B are stored with the index that is summed over
// first, and a thread adds up  sums[r][c] += A[k][row + r] * B[k][column + c]  for its few rows and
// columns: kR + kC shared loads for kR kC multiply-adds, all of them of neighbours. What is summed
// over once as a row and once as a column is therefore in shared memory twice.
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
  float at[rows][columns + kTilePack];  // padded: a column lies in different banks
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

// Some consecutive tokens of one head: `tokens` of `dim` elements, the first at `data`.
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

// tile[token][d], zeros beyond the end.
template <class To>
__device__ void load_rows(To& tile, const HeadRows& rows) {
  constexpr int kPacks = To::kColumns / kTilePack;
  for (int e = static_cast<int>(threadIdx.x); e < To::kRows * kPacks; e += kTileThreads) {
    const int token = e / kPacks, d = e % kPacks * kTilePack;
    store_pack(&tile.at[token][d], 0, rows.load(token, d));
  }
}

// tile[d][token]. Neighbouring threads have neighbouring tokens: their stores are of neighbours,
// and what their loads leave of a cache line the next turn takes.
template <class To>
__device__ void load_columns(To& tile, const HeadRows& rows) {
  for (int e = static_cast<int>(threadIdx.x); e < To::kRows / kTilePack * To::kColumns;
       e += kTileThreads) {
    const int token = e % To::kColumns, d = e / To::kColumns * kTilePack;
    const Pack<float, kTilePack> pack = rows.load(token, d);
    for (int q = 0; q < kTilePack; ++q) tile.at[d + q][token] = pack.at[q];
  }
}

// Whether every row of a (batch, head, token, dim) tensor begins at a pack.
template <class T>
bool rows_in_packs(const Heads<T>& h) {
  return aligned_for(h.data, kTilePack) && h.batch_stride % kTilePack == 0 &&
         h.head_stride % kTilePack == 0 && h.token_stride % kTilePack == 0;
}

// Which head and which tile of its rows a block works on. Late rows of causal attention have the
// most to do: they begin first.
struct TileJob {
  std::int64_t batch, head, first;  // row

  __device__ TileJob(std::int64_t job, const AttentionShape& s, std::int64_t tile,
                     bool late_first) {
    const std::int64_t tiles = ceil_div(s.tokens, tile);
    // Heads change fastest: blocks that run together have tiles of one length.
    head = take_digit(job, s.heads);
    batch = take_digit(job, s.batch);
    first = (late_first ? tiles - 1 - job : job) * tile;
  }
};
inline std::int64_t tile_jobs(const AttentionShape& s, std::int64_t tile) {
  return s.batch * s.heads * ceil_div(s.tokens, tile);
}

// Tokens of one head from `first` on.
__device__ inline HeadRows head_rows(const Heads<const float>& h, const TileJob& job,
                                     const AttentionShape& s, std::int64_t first, bool packs) {
  return {h.head(job.batch, job.head) + first * h.token_stride, h.token_stride, s.tokens - first,
          s.dim, packs};
}

// --- the tiled versions: false if dim is too large for them (above 128)

bool attention_tiled(Heads<const float> q, Heads<const float> k, Heads<const float> v,
                     Heads<float> out, RowStatistic<float>* statistics, const AttentionShape& s);
// row_dots: sum of dout out for every row.
bool attention_backward_tiled(Heads<const float> dout, const AttentionSaved<float>& saved,
                              const float* row_dots, Heads<float> dq, Heads<float> dk,
                              Heads<float> dv, const AttentionShape& s);

}  // namespace ringsmith::kernels::cuda
