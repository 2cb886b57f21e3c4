// Attention, version 3: bf16 on tensor cores, forward and backward (FlashAttention-2; Dao, 2023).
//
//   forward   one block per tile of 64 queries, looping over the keys as in version 2
//             (attention_forward.cu). While tiles of keys and values are used, cp.async copies the
//             next tiles
//   dq        one block per tile of queries, looping over the keys: P and dS from the rows'
//             statistics, dQ += dS K
//   dk, dv    one block per tile of keys, looping over the queries, with the corresponding
//             transposed products, S^T = K Q^T, dV += P^T dO, dK += dS^T Q
//
// P is computed three times and dS twice. A single backward kernel would compute each only once,
// but would need atomics for dQ, which add in an unpredictable order. This version gives the same
// bits in each run.
//
// P and dS are rounded to bf16 when they become left operands, and results are rounded once. Sums,
// scores and statistics are floats. The factor 1 / sqrt(dim) is applied to dQ and dK at the end
// instead of to dS.
#include <string>
#include <type_traits>

#include "kernels/cuda/attention_tensor.cuh"
#include "kernels/cuda/matmul.hpp"
#include "kernels/cuda/scratch.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::kernels::cuda {

namespace {

constexpr std::int64_t kMostDim = 128;
// Keys per tile. Long rows have fewer, to save registers.
template <int dim>
constexpr int kAlong = dim == 128 ? 32 : 64;

struct Problem {
  Heads<const bf16> q, k, v, dout;
  Heads<bf16> out, dq, dk, dv;
  RowStatistic<float>* statistics;
  const float* dots;  // dot product of each row of dout with the same row of out
  AttentionShape s;
  float scale;
  bool packs;

  [[nodiscard]] __device__ HalfRows rows(const Heads<const bf16>& h, const TileJob& job) const {
    return {h.head(job.batch, job.head), h.token_stride, s.tokens, s.dim, packs};
  }
  [[nodiscard]] __device__ std::int64_t first_row(const TileJob& job) const {
    return (job.batch * s.heads + job.head) * s.tokens;
  }
};

// Two stages, each with a tile of both operands.
template <int dim, int rows>
struct Stages {
  bf16* memory;
  __device__ bf16* first(std::int64_t step) const {
    return memory + step % 2 * 2 * kTileSize<dim, rows>;
  }
  __device__ bf16* second(std::int64_t step) const { return first(step) + kTileSize<dim, rows>; }
  __device__ void fetch(std::int64_t step, std::int64_t steps, const HalfRows& a, const HalfRows& b,
                        std::int64_t begin) const {
    if (step < steps) {
      fetch_rows<dim, rows>(first(step), a, begin + step * rows);
      fetch_rows<dim, rows>(second(step), b, begin + step * rows);
    }
    commit_copies();
  }
};

// Maximum and sum over the four lanes that share a row.
__device__ float largest_of_row(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 2));
}
__device__ float sum_of_row(float x) {
  x += __shfl_xor_sync(0xffffffffU, x, 1);
  return x + __shfl_xor_sync(0xffffffffU, x, 2);
}

template <int dim>
__global__ void __launch_bounds__(kTensorThreads) forward(Problem p) {
  constexpr int kKeys = kAlong<dim>;
  auto* const queries = dynamic_shared<bf16>();
  const Stages<dim, kKeys> stages{queries + kTileSize<dim, kTensorRows>};
  const int row = static_cast<int>(threadIdx.x) / kWarp * 16;
  const TileJob job(blockIdx.x, p.s, kTensorRows, p.s.causal);
  const HalfRows keys = p.rows(p.k, job), values = p.rows(p.v, job);
  const std::int64_t end = p.s.causal ? smaller(p.s.tokens, job.first + kTensorRows) : p.s.tokens;
  const std::int64_t steps = ceil_div(end, kKeys);

  HalfSums<dim> out = {};
  float largest[2] = {-INFINITY, -INFINITY}, total[2] = {};
  fetch_rows<dim, kTensorRows>(queries, p.rows(p.q, job), job.first);
  stages.fetch(0, steps, keys, values, 0);
  for (std::int64_t step = 0; step < steps; ++step) {
    wait_for_copies<0>();
    __syncthreads();  // tile `step` has arrived, and all threads have used the previous tile
    stages.fetch(step + 1, steps, keys, values, 0);
    HalfSums<kKeys> scores = {};
    add_scores<dim, kKeys>(scores, queries, row, stages.first(step));
    float most[2] = {largest[0], largest[1]};
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const std::int64_t i = job.first + row + row_of(q), key = step * kKeys + column_of(j, q);
        const bool seen = key < p.s.tokens && !(p.s.causal && key > i);
        scores[j][q] = seen ? scores[j][q] * p.scale : -INFINITY;
        most[q / 2] = fmaxf(most[q / 2], scores[j][q]);
      }
    float shrink[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      most[h] = largest_of_row(most[h]);
      shrink[h] = largest[h] == most[h] ? 1.0F : exp_of(largest[h] - most[h]);
      largest[h] = most[h];
      total[h] *= shrink[h];
    }
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        // exp would give NaN if the whole row is -infinity.
        const float e = scores[j][q] == -INFINITY ? 0.0F : exp_of(scores[j][q] - most[q / 2]);
        scores[j][q] = e;
        total[q / 2] += e;
      }
#pragma unroll
    for (int j = 0; j < dim / 8; ++j)
#pragma unroll
      for (int q = 0; q < 4; ++q) out[j][q] *= shrink[q / 2];
    add_mix<dim, kKeys>(out, scores, stages.second(step));
  }

  float inverse[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    inverse[h] = 1 / sum_of_row(total[h]);
    const std::int64_t i = job.first + row + row_of(2 * h);
    if (threadIdx.x % 4 == 0 && i < p.s.tokens)
      p.statistics[p.first_row(job) + i] = {largest[h], inverse[h]};
  }
  store_rows<dim>(out, inverse, p.out.head(job.batch, job.head), p.out.token_stride,
                  job.first + row, p.s.tokens, p.s.dim);
}

// P for the score of query i and key j, or 0 if i does not attend to j.
__device__ float probability(const Problem& p, float score, std::int64_t i, std::int64_t j,
                             const RowStatistic<float>& row) {
  const bool seen = i < p.s.tokens && j < p.s.tokens && !(p.s.causal && j > i);
  return seen ? exp_of(score * p.scale - row.largest) * row.inverse_sum : 0.0F;
}

template <int dim>
__global__ void __launch_bounds__(kTensorThreads) backward_queries(Problem p) {
  constexpr int kKeys = kAlong<dim>;
  auto* const queries = dynamic_shared<bf16>();
  bf16* const douts = queries + kTileSize<dim, kTensorRows>;
  const Stages<dim, kKeys> stages{douts + kTileSize<dim, kTensorRows>};
  const int row = static_cast<int>(threadIdx.x) / kWarp * 16;
  const TileJob job(blockIdx.x, p.s, kTensorRows, p.s.causal);
  const HalfRows keys = p.rows(p.k, job), values = p.rows(p.v, job);
  const std::int64_t end = p.s.causal ? smaller(p.s.tokens, job.first + kTensorRows) : p.s.tokens;
  const std::int64_t steps = ceil_div(end, kKeys);
  RowStatistic<float> statistic[2] = {};
  float dots[2] = {};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const std::int64_t i = job.first + row + row_of(2 * h);
    if (i >= p.s.tokens) continue;
    statistic[h] = p.statistics[p.first_row(job) + i];
    dots[h] = p.dots[p.first_row(job) + i];
  }

  HalfSums<dim> dq = {};
  fetch_rows<dim, kTensorRows>(queries, p.rows(p.q, job), job.first);
  fetch_rows<dim, kTensorRows>(douts, p.rows(p.dout, job), job.first);
  stages.fetch(0, steps, keys, values, 0);
  for (std::int64_t step = 0; step < steps; ++step) {
    wait_for_copies<0>();
    __syncthreads();
    stages.fetch(step + 1, steps, keys, values, 0);
    HalfSums<kKeys> scores = {}, dp = {};
    add_scores<dim, kKeys>(scores, queries, row, stages.first(step));
    add_scores<dim, kKeys>(dp, douts, row, stages.second(step));
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const std::int64_t i = job.first + row + row_of(q), key = step * kKeys + column_of(j, q);
        const float probable = probability(p, scores[j][q], i, key, statistic[q / 2]);
        scores[j][q] = probable == 0 ? 0.0F : probable * (dp[j][q] - dots[q / 2]);
      }
    add_mix<dim, kKeys>(dq, scores, stages.first(step));
  }
  const float scales[2] = {p.scale, p.scale};
  store_rows<dim>(dq, scales, p.dq.head(job.batch, job.head), p.dq.token_stride, job.first + row,
                  p.s.tokens, p.s.dim);
}

template <int dim>
__global__ void __launch_bounds__(kTensorThreads) backward_keys(Problem p) {
  constexpr int kQueries = dim == 128 ? 16 : 64;  // two results of 128 columns leave few registers
  auto* const keys = dynamic_shared<bf16>();
  bf16* const values = keys + kTileSize<dim, kTensorRows>;
  const Stages<dim, kQueries> stages{values + kTileSize<dim, kTensorRows>};
  const int row = static_cast<int>(threadIdx.x) / kWarp * 16;
  const TileJob job(blockIdx.x, p.s, kTensorRows, false);
  const HalfRows queries = p.rows(p.q, job), douts = p.rows(p.dout, job);
  // Causal: earlier queries attend to none of these keys.
  const std::int64_t begin = p.s.causal ? job.first / kQueries * kQueries : 0;
  const std::int64_t steps = ceil_div(p.s.tokens - begin, kQueries);

  HalfSums<dim> dk = {}, dv = {};
  fetch_rows<dim, kTensorRows>(keys, p.rows(p.k, job), job.first);
  fetch_rows<dim, kTensorRows>(values, p.rows(p.v, job), job.first);
  stages.fetch(0, steps, queries, douts, begin);
  for (std::int64_t step = 0; step < steps; ++step) {
    wait_for_copies<0>();
    __syncthreads();
    stages.fetch(step + 1, steps, queries, douts, begin);
    HalfSums<kQueries> scores = {}, dp = {};
    add_scores<dim, kQueries>(scores, keys, row, stages.first(step));
    add_scores<dim, kQueries>(dp, values, row, stages.second(step));
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j)
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const std::int64_t key = job.first + row + row_of(q);
        const std::int64_t i = begin + step * kQueries + column_of(j, q);
        RowStatistic<float> statistic{};
        float dot = 0;
        if (i < p.s.tokens) {
          statistic = p.statistics[p.first_row(job) + i];
          dot = p.dots[p.first_row(job) + i];
        }
        const float probable = probability(p, scores[j][q], i, key, statistic);
        scores[j][q] = probable;
        dp[j][q] = probable == 0 ? 0.0F : probable * (dp[j][q] - dot);
      }
    add_mix<dim, kQueries>(dv, scores, stages.second(step));
    add_mix<dim, kQueries>(dk, dp, stages.first(step));
  }
  const float scales[2] = {p.scale, p.scale}, ones[2] = {1, 1};
  store_rows<dim>(dk, scales, p.dk.head(job.batch, job.head), p.dk.token_stride, job.first + row,
                  p.s.tokens, p.s.dim);
  store_rows<dim>(dv, ones, p.dv.head(job.batch, job.head), p.dv.token_stride, job.first + row,
                  p.s.tokens, p.s.dim);
}

void row_dots(const Heads<const bf16>& dout, const Heads<const bf16>& out, float* dots,
              const AttentionShape& s) {
  for_each(s.rows(), [=] __device__(std::int64_t row) {
    std::int64_t batch = row;
    const std::int64_t token = take_digit(batch, s.tokens), head = take_digit(batch, s.heads);
    const bf16* const a = dout.head(batch, head) + token * dout.token_stride;
    const bf16* const b = out.head(batch, head) + token * out.token_stride;
    float sum = 0;
    for (std::int64_t d = 0; d < s.dim; ++d)
      sum = multiply_add(static_cast<float>(a[d]), static_cast<float>(b[d]), sum);
    dots[row] = sum;
  });
}

void check(const AttentionShape& s) {
  require(s.dim >= 1 && s.dim <= kMostDim,
          "attention on tensor cores: dim must be 1 to 128, got " + std::to_string(s.dim));
  require_tensor_cores();
}

}  // namespace

bool has_attention_bf16(const AttentionShape& s) {
#ifdef RINGSMITH_VGPU
  if (matmul_version() < 8) return false;
#endif
  return s.dim >= 1 && s.dim <= kMostDim && has_tensor_cores();
}

void attention_bf16(Heads<const bf16> q, Heads<const bf16> k, Heads<const bf16> v, Heads<bf16> out,
                    std::span<RowStatistic<float>> statistics, const AttentionShape& s) {
  check(s);
  Problem p{};
  p.q = q;
  p.k = k;
  p.v = v;
  p.out = out;
  p.statistics = statistics.data();
  p.s = s;
  p.scale = 1 / std::sqrt(static_cast<float>(s.dim));
  p.packs = half_packs(q) && half_packs(k) && half_packs(v);
  visit_dim(s.dim, [&]<int dim>(std::integral_constant<int, dim>) {
    launch_tiles(forward<dim>, tile_jobs(s, kTensorRows),
                 kTileSize<dim, kTensorRows> + 4 * kTileSize<dim, kAlong<dim>>, p);
  });
}

void attention_backward_bf16(Heads<const bf16> dout, const AttentionBf16Saved& saved,
                             Heads<bf16> dq, Heads<bf16> dk, Heads<bf16> dv,
                             const AttentionShape& s) {
  check(s);
  const Scratch<float> dots(std::max<std::int64_t>(s.rows(), 1));
  row_dots(dout, saved.out, dots.data(), s);
  Problem p{};
  p.q = saved.q;
  p.k = saved.k;
  p.v = saved.v;
  p.dout = dout;
  p.dq = dq;
  p.dk = dk;
  p.dv = dv;
  p.statistics = const_cast<RowStatistic<float>*>(saved.statistics.data());
  p.dots = dots.data();
  p.s = s;
  p.scale = 1 / std::sqrt(static_cast<float>(s.dim));
  p.packs = half_packs(p.q) && half_packs(p.k) && half_packs(p.v) && half_packs(dout);
  visit_dim(s.dim, [&]<int dim>(std::integral_constant<int, dim>) {
    const std::size_t elements = 2 * kTileSize<dim, kTensorRows> + 4 * kTileSize<dim, kAlong<dim>>;
    launch_tiles(backward_keys<dim>, tile_jobs(s, kTensorRows), elements, p);
    launch_tiles(backward_queries<dim>, tile_jobs(s, kTensorRows), elements, p);
  });
}

}  // namespace ringsmith::kernels::cuda
