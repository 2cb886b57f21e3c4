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
//
// 16 x 16 threads share a tile of 64 x 64 scores. A thread has the scores of 4 queries and 4 keys,
// and loads 4 packs of Q and 4 of K, along d, for 64 multiply-adds. Its keys are 16 apart, so that
// the threads of a warp read neighbouring rows, which are in different banks:
//
//              key   0   1  ..  15 |  16  17  ..  31 | ..
//   query 0 .. 3    t0  t1  .. t15 |  t0  t1  .. t15 | ..
//   query 4 .. 7   t16 t17  .. t31 | t16 t17  .. t31 | ..
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

constexpr int kSide = 16;  // threads along each side of a tile

// Square tiles: kT queries by kT keys.
template <int dim, int tile>
struct Shape {
  static constexpr int kDim = dim, kT = tile;
  static constexpr int kR = kT / kSide;      // rows of a thread, and its scores per row
  static constexpr int kOut = kDim / kSide;  // its columns of a gradient, in packs of kPack
  static constexpr int kPack = kOut < kTilePack ? kOut : kTilePack;
  using Rows = Tile<kT, kDim>;  // [token][d]
  using Square = Tile<kT, kT>;
};

template <class S>
struct Place {  // of this thread: its first row, its first score in a row, its first column
  int row = static_cast<int>(threadIdx.x) / kSide * S::kR;
  int score = static_cast<int>(threadIdx.x) % kSide;  // the next is kSide further
  int column = static_cast<int>(threadIdx.x) % kSide * S::kPack;
};

// sums[r][c] += A[row + r] . B[column + c kSide], dot products of the tiles' rows.
template <int kR, class Rows>
__device__ void add_dots(Sums<kR, kR>& sums, const Rows& a_tile, int row, const Rows& b_tile,
                         int column) {
#pragma unroll 4
  for (int d = 0; d < Rows::kColumns; d += kTilePack) {
    Pack<float, kTilePack> a[kR], b[kR];
#pragma unroll
    for (int r = 0; r < kR; ++r) a[r] = load_pack<kTilePack>(&a_tile.at[row + r][d], 0);
#pragma unroll
    for (int c = 0; c < kR; ++c) b[c] = load_pack<kTilePack>(&b_tile.at[column + c * kSide][d], 0);
#pragma unroll
    for (int q = 0; q < kTilePack; ++q)
#pragma unroll
      for (int c = 0; c < kR; ++c)
#pragma unroll
        for (int r = 0; r < kR; ++r) sums[r][c] = multiply_add(a[r].at[q], b[c].at[q], sums[r][c]);
  }
}

// sums += A^T B over all rows, for the rows [row ..] and this thread's columns: packs of
// consecutive columns, the next pack kSide packs further.
template <int kR, int kOut, class A, class B>
__device__ void add_outer(Sums<kR, kOut>& sums, const A& a_tile, int row, const B& b_tile,
                          int column) {
  constexpr int kP = kOut < kTilePack ? kOut : kTilePack;
#pragma unroll 4
  for (int k = 0; k < A::kRows; ++k) {
    const auto a = load_pack<kR>(&a_tile.at[k][row], 0);
#pragma unroll
    for (int c = 0; c < kOut; c += kP) {
      const auto b = load_pack<kP>(&b_tile.at[k][column + c * kSide], 0);
#pragma unroll
      for (int q = 0; q < kP; ++q)
#pragma unroll
        for (int r = 0; r < kR; ++r)
          sums[r][c + q] = multiply_add(a.at[r], b.at[q], sums[r][c + q]);
    }
  }
}

// A query's share in the gradients of a tile of keys: its row's statistics and D.
struct Query {
  float largest, inverse_sum, row_dot;
  int keys;  // the query sees only this number of the tile's keys, from the first
};
template <class S>
__device__ Query query_of(const Arguments& a, std::int64_t first_row, std::int64_t i,
                          std::int64_t first_key) {
  if (i >= a.s.tokens) return {0, 0, 0, 0};
  const std::int64_t end = a.s.causal ? i + 1 : a.s.tokens;
  const RowStatistic<float> row = a.statistics[first_row + i];
  return {row.largest, row.inverse_sum, a.row_dots[first_row + i],
          end <= first_key ? 0 : static_cast<int>(smaller(end - first_key, S::kT))};
}

// P and dS of a query and a key, from their entries of Q K^T and dOut V^T.
struct Gradient {
  float p, ds;
};
__device__ inline Gradient gradient(const Query& query, int key, float scale, float score,
                                    float dp) {
  if (key >= query.keys) return {0, 0};
  const float p = exp_of(score * scale - query.largest) * query.inverse_sum;
  return {p, p * (dp - query.row_dot) * scale};
}

template <class S>
__device__ void store_tile(const Heads<float>& to, const TileJob& job, const AttentionShape& s,
                           const Place<S>& at, const Sums<S::kR, S::kOut>& sums) {
  for (int r = 0; r < S::kR && job.first + at.row + r < s.tokens; ++r) {
    float* const row = to.head(job.batch, job.head) + (job.first + at.row + r) * to.token_stride;
    for (int c = 0; c < S::kOut; ++c) {
      const int column = at.column + c / S::kPack * S::kPack * kSide + c % S::kPack;
      if (column < s.dim) row[column] = sums[r][c];
    }
  }
}

template <class S>
struct KeyTiles {  // shared memory of a block with a tile of keys
  typename S::Rows keys, values, queries, dout;
  typename S::Square p, ds;  // [i][j]
};

template <class S>
__global__ void __launch_bounds__(kSide* kSide, 2) backward_keys(Arguments a) {
  auto& tiles = *dynamic_shared<KeyTiles<S>>();
  const Place<S> at;
  const TileJob job(blockIdx.x, a.s, S::kT, false);
  const std::int64_t first_row = a.first_row(job);
  load_rows<kSide * kSide>(tiles.keys, head_rows(a.k, job, a.s, job.first, a.packs));
  load_rows<kSide * kSide>(tiles.values, head_rows(a.v, job, a.s, job.first, a.packs));
  Sums<S::kR, S::kOut> dk = {}, dv = {};
  for (std::int64_t i0 = a.s.causal ? job.first : 0; i0 < a.s.tokens; i0 += S::kT) {
    load_rows<kSide * kSide>(tiles.queries, head_rows(a.q, job, a.s, i0, a.packs));
    load_rows<kSide * kSide>(tiles.dout, head_rows(a.dout, job, a.s, i0, a.packs));
    __syncthreads();
    Sums<S::kR, S::kR> scores = {}, dp = {};
    add_dots(scores, tiles.queries, at.row, tiles.keys, at.score);
    add_dots(dp, tiles.dout, at.row, tiles.values, at.score);
    for (int r = 0; r < S::kR; ++r) {
      const Query query = query_of<S>(a, first_row, i0 + at.row + r, job.first);
      for (int c = 0; c < S::kR; ++c) {
        const int key = at.score + c * kSide;
        const Gradient g = gradient(query, key, a.scale, scores[r][c], dp[r][c]);
        tiles.p.at[at.row + r][key] = g.p;
        tiles.ds.at[at.row + r][key] = g.ds;
      }
    }
    __syncthreads();
    add_outer(dv, tiles.p, at.row, tiles.dout, at.column);
    add_outer(dk, tiles.ds, at.row, tiles.queries, at.column);
    __syncthreads();  // the tiles have been read
  }
  store_tile<S>(a.dk, job, a.s, at, dk);
  store_tile<S>(a.dv, job, a.s, at, dv);
}

template <class S>
struct QueryTiles {
  typename S::Rows queries, dout, keys, values;
  typename S::Square ds;  // [j][i]
};

template <class S>
__global__ void __launch_bounds__(kSide* kSide, 2) backward_queries(Arguments a) {
  auto& tiles = *dynamic_shared<QueryTiles<S>>();
  const Place<S> at;
  const TileJob job(blockIdx.x, a.s, S::kT, a.s.causal);
  const std::int64_t first_row = a.first_row(job);
  load_rows<kSide * kSide>(tiles.queries, head_rows(a.q, job, a.s, job.first, a.packs));
  load_rows<kSide * kSide>(tiles.dout, head_rows(a.dout, job, a.s, job.first, a.packs));
  Sums<S::kR, S::kOut> dq = {};
  const std::int64_t end = a.s.causal ? smaller(a.s.tokens, job.first + S::kT) : a.s.tokens;
  for (std::int64_t j0 = 0; j0 < end; j0 += S::kT) {
    load_rows<kSide * kSide>(tiles.keys, head_rows(a.k, job, a.s, j0, a.packs));
    load_rows<kSide * kSide>(tiles.values, head_rows(a.v, job, a.s, j0, a.packs));
    __syncthreads();
    // Transposed, so that the threads of a warp write neighbouring elements of a row.
    Sums<S::kR, S::kR> scores = {}, dp = {};  // [key][query]
    add_dots(scores, tiles.keys, at.row, tiles.queries, at.score);
    add_dots(dp, tiles.values, at.row, tiles.dout, at.score);
    for (int c = 0; c < S::kR; ++c) {
      const int place = at.score + c * kSide;
      const Query query = query_of<S>(a, first_row, job.first + place, j0);
      for (int r = 0; r < S::kR; ++r)
        tiles.ds.at[at.row + r][place] =
            gradient(query, at.row + r, a.scale, scores[r][c], dp[r][c]).ds;
    }
    __syncthreads();
    add_outer(dq, tiles.ds, at.row, tiles.keys, at.column);
    __syncthreads();
  }
  store_tile<S>(a.dq, job, a.s, at, dq);
}

// A block may have more than the default 48 KiB of shared memory if it asks for it.
template <class Tiles>
void launch_with(void (*kernel)(Arguments), std::int64_t jobs, const Arguments& a) {
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(sizeof(Tiles))));
  launch(kernel, dim3(static_cast<unsigned>(jobs)), kSide * kSide, sizeof(Tiles), stream(), a);
}

template <class S>
void run(const Arguments& a) {
  const std::int64_t jobs = tile_jobs(a.s, S::kT);
  if (jobs == 0) return;
  launch_with<KeyTiles<S>>(backward_keys<S>, jobs, a);
  launch_with<QueryTiles<S>>(backward_queries<S>, jobs, a);
}

// With large tiles if the device has the shared memory for them: devices of compute capability 7.5
// have 64 KiB per block, of which the small tiles need at most 44.
template <class Large, class Small>
void run_on_device(const Arguments& a) {
  static_assert(sizeof(KeyTiles<Large>) >= sizeof(QueryTiles<Large>));
  static_assert(sizeof(KeyTiles<Small>) <= 44 << 10);
  int device = 0, most = 0;
  cuda_check(cudaGetDevice(&device));
  cuda_check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  if (sizeof(KeyTiles<Large>) <= static_cast<std::size_t>(most))
    run<Large>(a);
  else
    run<Small>(a);
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
    run_on_device<Shape<32, 64>, Shape<32, 32>>(a);
  else if (s.dim <= 64)
    run_on_device<Shape<64, 64>, Shape<64, 32>>(a);
  else if (s.dim <= 128)
    run_on_device<Shape<128, 32>, Shape<128, 16>>(a);
  else
    return false;
  return true;
}

}  // namespace ringsmith::kernels::cuda
