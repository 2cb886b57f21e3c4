// Attention forward, version 2: tiles (FlashAttention; Dao et al., 2022).
//
// A block of 128 threads has a tile of queries and loops over the keys. Scores are never stored in
// memory. They become probabilities relative to the largest score so far. If a tile contains a
// larger score, the previous sums are scaled down:
//
//   for each tile of keys:   S = Q K^T / sqrt(dim)               in registers
//                            m' = max(m, row maxima of S)
//                            P = exp(S - m')                     to shared memory
//                            O = O exp(m - m') + P V,   l = l exp(m - m') + row sums of P
//   out = O / l,   statistics = (m, 1 / l)
//
// Each thread sums its own columns' part of l. The parts are added at the end.
#include <cmath>

#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/elementwise_math.cuh"
#include "kernels/cuda/tree.cuh"

namespace ringsmith::kernels::cuda {

namespace {

template <int dim, int queries, int keys>
struct Shape {
  static constexpr int kDim = dim, kQ = queries, kK = keys;
  static constexpr int kR = 4;                                         // rows per thread
  static constexpr int kAcross = kTileThreads / (kQ / kR);             // threads per row
  static constexpr int kScores = kK / kAcross, kOut = kDim / kAcross;  // columns per thread
};

struct Arguments {
  Heads<const float> q, k, v;
  Heads<float> out;
  RowStatistic<float>* statistics;
  AttentionShape s;
  float scale;
  bool packs;
};

template <class S>
__global__ void __launch_bounds__(kTileThreads) forward_tiles(Arguments p) {
  constexpr int kR = S::kR;
  __shared__ Tile<S::kDim, S::kQ> queries;       // [d][i]
  __shared__ Tile<S::kDim, S::kK> keys;          // [d][j]
  __shared__ Tile<S::kK, S::kDim> values;        // [j][d]
  __shared__ Tile<S::kK, S::kQ> probabilities;   // [j][i]
  __shared__ float part[S::kAcross][S::kQ + 1];  // partial maxima; after the loop, partial sums
  const int across = static_cast<int>(threadIdx.x) % S::kAcross;
  const int row = static_cast<int>(threadIdx.x) / S::kAcross * kR;
  const int score = across * S::kScores, column = across * S::kOut;
  const TileJob job(blockIdx.x, p.s, S::kQ, p.s.causal);
  load_columns(queries, head_rows(p.q, job, p.s, job.first, p.packs));

  Sums<kR, S::kOut> out = {};
  float largest[kR], sum[kR] = {};
  for (float& m : largest) m = -INFINITY;
  const std::int64_t end = p.s.causal ? smaller(p.s.tokens, job.first + S::kQ) : p.s.tokens;
  for (std::int64_t first_key = 0; first_key < end; first_key += S::kK) {
    load_columns(keys, head_rows(p.k, job, p.s, first_key, p.packs));
    load_rows(values, head_rows(p.v, job, p.s, first_key, p.packs));
    __syncthreads();

    Sums<kR, S::kScores> scores = {};
    add_product(scores, queries, row, keys, score);
    for (int r = 0; r < kR; ++r) {
      float most = -INFINITY;
      for (int c = 0; c < S::kScores; ++c) {
        const std::int64_t i = job.first + row + r, j = first_key + score + c;
        const bool seen = j < p.s.tokens && !(p.s.causal && j > i);
        scores[r][c] = seen ? scores[r][c] * p.scale : -INFINITY;
        most = Larger{}(most, scores[r][c]);
      }
      part[across][row + r] = most;
    }
    __syncthreads();

    for (int r = 0; r < kR; ++r) {
      float most = largest[r];
      for (int a = 0; a < S::kAcross; ++a) most = Larger{}(most, part[a][row + r]);
      const float shrink = largest[r] == most ? 1.0F : exp_of(largest[r] - most);
      largest[r] = most;
      sum[r] *= shrink;
      for (int c = 0; c < S::kOut; ++c) out[r][c] *= shrink;
      for (int c = 0; c < S::kScores; ++c) {
        const float e = exp_of(scores[r][c] - most);
        sum[r] += e;
        probabilities.at[score + c][row + r] = e;
      }
    }
    __syncthreads();
    add_product(out, probabilities, row, values, column);
    __syncthreads();  // all shared data has been read
  }

  for (int r = 0; r < kR; ++r) part[across][row + r] = sum[r];
  __syncthreads();
  for (int r = 0; r < kR && job.first + row + r < p.s.tokens; ++r) {
    float total = 0;
    for (int a = 0; a < S::kAcross; ++a) total += part[a][row + r];
    const std::int64_t i = job.first + row + r;
    float* const to = p.out.head(job.batch, job.head) + i * p.out.token_stride;
    for (int c = 0; c < S::kOut && column + c < p.s.dim; ++c) to[column + c] = out[r][c] / total;
    if (across == 0)
      p.statistics[(job.batch * p.s.heads + job.head) * p.s.tokens + i] = {largest[r], 1 / total};
  }
}

template <class S>
void run(const Arguments& p) {
  const std::int64_t jobs = tile_jobs(p.s, S::kQ);
  if (jobs > 0)
    launch(forward_tiles<S>, dim3(static_cast<unsigned>(jobs)), kTileThreads, 0, stream(), p);
}

}  // namespace

bool attention_tiled(Heads<const float> q, Heads<const float> k, Heads<const float> v,
                     Heads<float> out, RowStatistic<float>* statistics, const AttentionShape& s) {
  const Arguments p{q,
                    k,
                    v,
                    out,
                    statistics,
                    s,
                    1 / std::sqrt(static_cast<float>(s.dim)),
                    rows_in_packs(q) && rows_in_packs(k) && rows_in_packs(v)};
  if (s.dim <= 32)
    run<Shape<32, 64, 32>>(p);
  else if (s.dim <= 64)
    run<Shape<64, 64, 32>>(p);
  else if (s.dim <= 128)
    run<Shape<128, 32, 16>>(p);
  else
    return false;
  return true;
}

}  // namespace ringsmith::kernels::cuda
