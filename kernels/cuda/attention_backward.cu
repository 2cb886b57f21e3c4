// Attention backward, version 2: tiles, in two kernels.
//
// P is recomputed from the scores and each row's two statistics. D is each row's dot product of
// dOut and out:
//
//   P = exp(Q K^T scale - m) / l        dP = dOut V^T        dS = P (dP - D) scale
//
// One kernel loops over the queries for a tile of keys, another over the keys for a tile of
// queries. S and dP are computed twice, but no block adds to another block's result, so no atomics
// are needed and the order of every sum is fixed.
//
//   keys:     dV += P^T dOut    dK += dS^T Q                 queries:   dQ += dS K
#include <cmath>

#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/elementwise_math.cuh"

namespace ringsmith::kernels::cuda {

namespace {

struct Arguments {
  Heads<const float> dout, q, k, v;
  const RowStatistic<float>* statistics;
  const float* row_dots;
  Heads<float> dq, dk, dv;
  AttentionShape s;
  float scale;
  bool packs;

  __device__ std::int64_t first_row(const TileJob& job) const {
    return (job.batch * s.heads + job.head) * s.tokens;
  }
};

// Square tiles: kT queries by kT keys.
template <int dim, int tile>
struct Shape {
  static constexpr int kDim = dim, kT = tile;
  static constexpr int kR = 2;
  static constexpr int kAcross = kTileThreads / (kT / kR);
  static constexpr int kScores = kT / kAcross, kOut = kDim / kAcross;
  using Columns = Tile<kDim, kT>;  // [d][token]
  using Rows = Tile<kT, kDim>;     // [token][d]
  using Square = Tile<kT, kT>;
};

template <class S>
struct Place {  // position of this thread in every tile
  int row = static_cast<int>(threadIdx.x) / S::kAcross * S::kR;
  int score = static_cast<int>(threadIdx.x) % S::kAcross * S::kScores;
  int column = static_cast<int>(threadIdx.x) % S::kAcross * S::kOut;
};

// P and dS of query i and key j, from their entries of Q K^T and dOut V^T.
struct Gradient {
  float p, ds;
};
__device__ inline Gradient gradient(const Arguments& a, std::int64_t first_row, std::int64_t i,
                                    std::int64_t j, float score, float dp) {
  if (i >= a.s.tokens || j >= a.s.tokens || (a.s.causal && j > i)) return {0, 0};
  const RowStatistic<float> row = a.statistics[first_row + i];
  const float p = exp_of(score * a.scale - row.largest) * row.inverse_sum;
  return {p, p * (dp - a.row_dots[first_row + i]) * a.scale};
}

template <class S>
__device__ void store_tile(const Heads<float>& to, const TileJob& job, const AttentionShape& s,
                           const Place<S>& at, const Sums<S::kR, S::kOut>& sums) {
  for (int r = 0; r < S::kR && job.first + at.row + r < s.tokens; ++r) {
    float* const row = to.head(job.batch, job.head) + (job.first + at.row + r) * to.token_stride;
    for (int c = 0; c < S::kOut && at.column + c < s.dim; ++c) row[at.column + c] = sums[r][c];
  }
}

template <class S>
struct KeyTiles {  // shared memory of a block with a tile of keys
  typename S::Columns keys, values, queries, dout;
  typename S::Rows query_rows, dout_rows;
  typename S::Square p, ds;  // [i][j]
};

template <class S>
__global__ void __launch_bounds__(kTileThreads) backward_keys(Arguments a) {
  auto& tiles = *dynamic_shared<KeyTiles<S>>();
  const Place<S> at;
  const TileJob job(blockIdx.x, a.s, S::kT, false);
  const std::int64_t first_row = a.first_row(job);
  load_columns(tiles.keys, head_rows(a.k, job, a.s, job.first, a.packs));
  load_columns(tiles.values, head_rows(a.v, job, a.s, job.first, a.packs));
  Sums<S::kR, S::kOut> dk = {}, dv = {};
  for (std::int64_t i0 = a.s.causal ? job.first : 0; i0 < a.s.tokens; i0 += S::kT) {
    const HeadRows q = head_rows(a.q, job, a.s, i0, a.packs);
    const HeadRows dy = head_rows(a.dout, job, a.s, i0, a.packs);
    load_columns(tiles.queries, q);
    load_columns(tiles.dout, dy);
    load_rows(tiles.query_rows, q);
    load_rows(tiles.dout_rows, dy);
    __syncthreads();
    Sums<S::kR, S::kScores> scores = {}, dp = {};
    add_product(scores, tiles.queries, at.row, tiles.keys, at.score);
    add_product(dp, tiles.dout, at.row, tiles.values, at.score);
    for (int r = 0; r < S::kR; ++r)
      for (int c = 0; c < S::kScores; ++c) {
        const Gradient g = gradient(a, first_row, i0 + at.row + r, job.first + at.score + c,
                                    scores[r][c], dp[r][c]);
        tiles.p.at[at.row + r][at.score + c] = g.p;
        tiles.ds.at[at.row + r][at.score + c] = g.ds;
      }
    __syncthreads();
    add_product(dv, tiles.p, at.row, tiles.dout_rows, at.column);
    add_product(dk, tiles.ds, at.row, tiles.query_rows, at.column);
    __syncthreads();  // the tiles have been read
  }
  store_tile<S>(a.dk, job, a.s, at, dk);
  store_tile<S>(a.dv, job, a.s, at, dv);
}

template <class S>
struct QueryTiles {
  typename S::Columns queries, dout, keys, values;
  typename S::Rows key_rows;
  typename S::Square ds;  // [j][i]
};

template <class S>
__global__ void __launch_bounds__(kTileThreads) backward_queries(Arguments a) {
  auto& tiles = *dynamic_shared<QueryTiles<S>>();
  const Place<S> at;
  const TileJob job(blockIdx.x, a.s, S::kT, a.s.causal);
  const std::int64_t first_row = a.first_row(job);
  load_columns(tiles.queries, head_rows(a.q, job, a.s, job.first, a.packs));
  load_columns(tiles.dout, head_rows(a.dout, job, a.s, job.first, a.packs));
  Sums<S::kR, S::kOut> dq = {};
  const std::int64_t end = a.s.causal ? smaller(a.s.tokens, job.first + S::kT) : a.s.tokens;
  for (std::int64_t j0 = 0; j0 < end; j0 += S::kT) {
    const HeadRows k = head_rows(a.k, job, a.s, j0, a.packs);
    load_columns(tiles.keys, k);
    load_rows(tiles.key_rows, k);
    load_columns(tiles.values, head_rows(a.v, job, a.s, j0, a.packs));
    __syncthreads();
    Sums<S::kR, S::kScores> scores = {}, dp = {};
    add_product(scores, tiles.queries, at.row, tiles.keys, at.score);
    add_product(dp, tiles.dout, at.row, tiles.values, at.score);
    for (int r = 0; r < S::kR; ++r)
      for (int c = 0; c < S::kScores; ++c)
        tiles.ds.at[at.score + c][at.row + r] = gradient(a, first_row, job.first + at.row + r,
                                                         j0 + at.score + c, scores[r][c], dp[r][c])
                                                    .ds;
    __syncthreads();
    add_product(dq, tiles.ds, at.row, tiles.key_rows, at.column);
    __syncthreads();
  }
  store_tile<S>(a.dq, job, a.s, at, dq);
}

// If dim is above 32, the tiles need more than the default 48 KiB, but they fit in 64 KiB, which
// every device of compute capability 7.0 or above supports.
template <class Tiles>
void launch_with(void (*kernel)(Arguments), std::int64_t jobs, const Arguments& a) {
  static_assert(sizeof(Tiles) <= 64 << 10);
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(sizeof(Tiles))));
  launch(kernel, dim3(static_cast<unsigned>(jobs)), kTileThreads, sizeof(Tiles), stream(), a);
}

template <class S>
void run(const Arguments& a) {
  const std::int64_t jobs = tile_jobs(a.s, S::kT);
  if (jobs == 0) return;
  launch_with<KeyTiles<S>>(backward_keys<S>, jobs, a);
  launch_with<QueryTiles<S>>(backward_queries<S>, jobs, a);
}

}  // namespace

bool attention_backward_tiled(Heads<const float> dout, const AttentionSaved<float>& saved,
                              const float* row_dots, Heads<float> dq, Heads<float> dk,
                              Heads<float> dv, const AttentionShape& s) {
  const Arguments a{dout,
                    saved.q,
                    saved.k,
                    saved.v,
                    saved.statistics.data(),
                    row_dots,
                    dq,
                    dk,
                    dv,
                    s,
                    1 / std::sqrt(static_cast<float>(s.dim)),
                    rows_in_packs(dout) && rows_in_packs(saved.q) && rows_in_packs(saved.k) &&
                        rows_in_packs(saved.v)};
  if (s.dim <= 32)
    run<Shape<32, 32>>(a);
  else if (s.dim <= 64)
    run<Shape<64, 32>>(a);
  else if (s.dim <= 128)
    run<Shape<128, 16>>(a);
  else
    return false;
  return true;
}

}  // namespace ringsmith::kernels::cuda
