// Attention, version 3: bf16 on tensor cores, forward and backward (FlashAttention-2; Dao, 2023).
//
//   forward   one block per tile of 64 queries, looping over the keys as in version 2
//             (attention_forward.cu). While tiles of keys and values are used, cp.async copies the
//             next tiles
//   dq        one block per tile of queries, looping over the keys: P and dS from the rows' terms,
//             dQ += dS K
//   dk, dv    one block per tile of keys (dim 128: for each of the two), looping over the queries,
//             with the corresponding transposed products, S^T = K Q^T, dV += P^T dO, dK += dS^T Q
//
// P is computed three times and dS twice. A single backward kernel would compute each only once,
// but would need atomics for dQ, which add in an unpredictable order. This version gives the same
// bits in each run.
//
// P and dS are rounded to bf16 when they become left operands, and results are rounded once. Sums,
// scores and statistics are floats. The factor 1 / sqrt(dim) is applied to dQ and dK at the end
// instead of to dS.
//
// A warp issues one instruction per cycle at most, and a product of 16 x 8 x 16 keeps its tensor
// core busy for 4 cycles (H100). The 64 products of a tile of the forward pass are thus worth 256
// issued instructions, and all other instructions compete with them. Therefore
//
//   exp(scale S - m) is exp2(scale log2(e) S - m log2(e)): a multiply-add and one instruction more.
//   In the backward pass m log2(e) includes the logarithm of the sum, and P needs no other factor
//   only tiles at the diagonal and at the end compare indices (argument `whole`)
//   the terms of 64 queries are copied to shared memory with their tile
//   copies keep their addresses (TileCopies)
//
// `make nvcc-check` counts the instructions.
#include <string>
#include <type_traits>

#include "kernels/cuda/attention_tensor.cuh"
#include "kernels/cuda/matmul.hpp"
#include "kernels/cuda/row_dots.cuh"
#include "kernels/cuda/scratch.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::kernels::cuda {

namespace {

constexpr std::int64_t kMostDim = 128;
constexpr float kLog2E = 1.44269504F, kLn2 = 0.693147181F;
// Keys per tile; fewer for long rows, to save registers.
template <int dim>
constexpr int kAlong = dim == 128 ? 32 : 64;
// The backward kernels process a tile in parts of 32 keys or queries, for the same reason.
template <int rows>
constexpr int kPart = rows < 32 ? rows : 32;

// Resident blocks per multiprocessor, which share its 64 Ki registers.
[[maybe_unused]] constexpr int kForwardBlocks = 4, kQueryBlocks = 3;  // unused on the emulator
template <int dim>
[[maybe_unused]] constexpr int kKeyBlocks = dim == 64 ? 2 : 3;

// The terms of a query in backward: P = exp2(S scale log2(e) - log_sum), dS = P (dP - dot).
struct alignas(8) RowTerms {
  float log_sum;  // log2 of the row's sum of exp(scale S)
  float dot;      // dot product of the rows of dout and out
};
constexpr int kTermsPerCopy = kCopy * sizeof(bf16) / sizeof(RowTerms);

struct Problem {
  Heads<const bf16> q, k, v, dout;
  Heads<bf16> out, dq, dk, dv;
  RowStatistic<float>* statistics;
  // terms_each for each head, i.e. whole tiles. Queries beyond the last have zeros.
  const RowTerms* terms;
  std::int64_t terms_each;
  AttentionShape s;
  float scale, scale2;  // 1 / sqrt(dim), and this times log2(e)
  bool packs, pairs;    // alignment of operands, and of results

  template <int dim, int rows>
  [[nodiscard]] __device__ TileCopies<dim, rows> copies(const Heads<const bf16>& h,
                                                        const HeadTile& job, int first) const {
    return {h, job, s, packs, first};
  }
  [[nodiscard]] __device__ const RowTerms* terms_of(const HeadTile& job, int first) const {
    return terms + (job.batch * s.heads + job.head) * terms_each + first;
  }
  // The number of keys that query i sees.
  [[nodiscard]] __device__ int seen_by(int i) const {
    const int tokens = static_cast<int>(s.tokens);
    return s.causal && i < tokens ? i + 1 : tokens;
  }
};

// Two stages, each with a tile of both operands.
template <int dim, int rows>
struct Stages {
  bf16* memory;
  TileCopies<dim, rows> a, b;

  __device__ bf16* first(int step) const { return memory + step % 2 * 2 * kTileSize<dim, rows>; }
  __device__ bf16* second(int step) const { return first(step) + kTileSize<dim, rows>; }
  __device__ bf16* end() const { return memory + 4 * kTileSize<dim, rows>; }
  // Starts the copies of tile `step`, which begins at row `from`. Must be called for 0, 1, 2 ...
  __device__ void fetch(int step, int from) {
    a.start(first(step), from);
    b.start(second(step), from);
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
__global__ void __launch_bounds__(kTensorThreads, kForwardBlocks) forward(Problem p) {
  constexpr int kKeys = kAlong<dim>;
  auto* const queries = dynamic_shared<bf16>();
  const int row = static_cast<int>(threadIdx.x) / kWarp * 16;
  const HeadTile job(p.s.causal);
  const int first = job.first;
  const int steps = static_cast<int>(ceil_div(p.seen_by(first + kTensorRows - 1), kKeys));
  const int whole_steps = p.seen_by(first) / kKeys;  // with keys that all queries see
  Stages<dim, kKeys> stages{queries + kTileSize<dim, kTensorRows>,
                            p.copies<dim, kKeys>(p.k, job, 0), p.copies<dim, kKeys>(p.v, job, 0)};

  HalfSums<dim> out = {};
  // Per row: the largest score times scale2, and this lane's sum of exp2(score scale2 - largest).
  float largest[2] = {-INFINITY, -INFINITY}, total[2] = {};
  const auto use_tile = [&](int step, auto whole) {
    HalfSums<kKeys> scores = {};
    add_scores<dim, kKeys>(scores, queries, row, stages.first(step));
    float most[2] = {-INFINITY, -INFINITY};
    if constexpr (!decltype(whole)::value) {
      const int begin = step * kKeys;
      const int seen[2] = {p.seen_by(first + row + row_of(0)) - begin,
                           p.seen_by(first + row + row_of(2)) - begin};
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
        for (int q = 0; q < 4; ++q)
          if (column_of(j, q) >= seen[q / 2]) scores[j][q] = -INFINITY;
    }
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
      for (int q = 0; q < 4; ++q) most[q / 2] = fmaxf(most[q / 2], scores[j][q]);
    float base[2], shrink[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float before = largest[h];
      largest[h] = fmaxf(before, largest_of_row(most[h]) * p.scale2);
      // If all scores of the row so far are -infinity, their differences are NaN.
      base[h] = largest[h] == -INFINITY ? 0.0F : largest[h];
      shrink[h] = exp2_fast(before - base[h]);
      total[h] *= shrink[h];
    }
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        scores[j][q] = exp2_fast(multiply_add(scores[j][q], p.scale2, -base[q / 2]));
        total[q / 2] += scores[j][q];
      }
#pragma unroll
    for (int j = 0; j < dim / 8; ++j)
#pragma unroll
      for (int q = 0; q < 4; ++q) out[j][q] *= shrink[q / 2];
    add_mix<dim, kKeys>(out, scores, stages.second(step));
  };

  p.copies<dim, kTensorRows>(p.q, job, first).start(queries, first);
  stages.fetch(0, 0);
  commit_copies();
  for (int step = 0; step < steps; ++step) {
    wait_for_copies<0>();
    __syncthreads();  // tile `step` has arrived, and all threads have used the previous tile
    if (step + 1 < steps) stages.fetch(step + 1, (step + 1) * kKeys);
    commit_copies();
    if (step < whole_steps)
      use_tile(step, std::true_type());
    else
      use_tile(step, std::false_type());
  }

  float inverse[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    inverse[h] = 1 / sum_of_row(total[h]);
    const int i = first + row + row_of(2 * h);
    if (threadIdx.x % 4 == 0 && i < p.s.tokens)
      p.statistics[(job.batch * p.s.heads + job.head) * p.s.tokens + i] = {largest[h] * kLn2,
                                                                           inverse[h]};
  }
  store_rows<dim>(out, inverse, p.out, job, p.s, p.pairs, first + row);
}

template <int dim>
__global__ void __launch_bounds__(kTensorThreads, kQueryBlocks) backward_queries(Problem p) {
  constexpr int kKeys = kAlong<dim>, kN = kPart<kKeys>;
  auto* const queries = dynamic_shared<bf16>();
  bf16* const douts = queries + kTileSize<dim, kTensorRows>;
  const int row = static_cast<int>(threadIdx.x) / kWarp * 16;
  const HeadTile job(p.s.causal);
  const int first = job.first;
  const int steps = static_cast<int>(ceil_div(p.seen_by(first + kTensorRows - 1), kKeys));
  const int whole_steps = p.seen_by(first) / kKeys;
  Stages<dim, kKeys> stages{douts + kTileSize<dim, kTensorRows>, p.copies<dim, kKeys>(p.k, job, 0),
                            p.copies<dim, kKeys>(p.v, job, 0)};
  const RowTerms* const all_terms = p.terms_of(job, first + row);
  const RowTerms terms[2] = {all_terms[row_of(0)], all_terms[row_of(2)]};

  HalfSums<dim> dq = {};
  // Processes a part of the tile: kN keys, starting at key `part`.
  const auto use_part = [&](int step, int part, auto whole) {
    const bf16* const keys = stages.first(step) + part * kRowStride<dim>;
    const bf16* const values = stages.second(step) + part * kRowStride<dim>;
    HalfSums<kN> scores = {}, dp = {};
    add_scores<dim, kN>(scores, queries, row, keys);
    add_scores<dim, kN>(dp, douts, row, values);
    const int begin = step * kKeys + part;
    const int seen[2] = {p.seen_by(first + row + row_of(0)) - begin,
                         p.seen_by(first + row + row_of(2)) - begin};
#pragma unroll
    for (int j = 0; j < kN / 8; ++j)
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const RowTerms& t = terms[q / 2];
        const float probable = exp2_fast(multiply_add(scores[j][q], p.scale2, -t.log_sum));
        scores[j][q] = probable * (dp[j][q] - t.dot);
        if (!decltype(whole)::value && column_of(j, q) >= seen[q / 2]) scores[j][q] = 0;
      }
    add_mix<dim, kN>(dq, scores, keys);
  };

  p.copies<dim, kTensorRows>(p.q, job, first).start(queries, first);
  p.copies<dim, kTensorRows>(p.dout, job, first).start(douts, first);
  stages.fetch(0, 0);
  commit_copies();
  for (int step = 0; step < steps; ++step) {
    wait_for_copies<0>();
    __syncthreads();
    if (step + 1 < steps) stages.fetch(step + 1, (step + 1) * kKeys);
    commit_copies();
    if (step < whole_steps) {
#pragma unroll
      for (int part = 0; part < kKeys; part += kN) use_part(step, part, std::true_type());
    } else {
#pragma unroll
      for (int part = 0; part < kKeys; part += kN) use_part(step, part, std::false_type());
    }
  }
  const float scales[2] = {p.scale, p.scale};
  store_rows<dim>(dq, scales, p.dq, job, p.s, p.pairs, first + row);
}

// With 128 columns, dK and dV do not both fit into a thread's registers, so each gets its own
// launch.
enum class Gradients { both, keys, values };

template <int dim, Gradients which>
__global__ void __launch_bounds__(kTensorThreads, kKeyBlocks<dim>) backward_keys(Problem p) {
  constexpr int kQueries = kAlong<dim>, kN = kPart<kQueries>;
  constexpr bool kKeys = which != Gradients::values, kValues = which != Gradients::keys;
  auto* const keys = dynamic_shared<bf16>();
  bf16* const values = keys + kTileSize<dim, kTensorRows>;
  const int row = static_cast<int>(threadIdx.x) / kWarp * 16;
  const HeadTile job(false);
  const int first = job.first, tokens = static_cast<int>(p.s.tokens);
  // Causal: earlier queries attend to none of these keys.
  const int start = p.s.causal ? first / kQueries * kQueries : 0;
  const int steps = static_cast<int>(ceil_div(tokens - start, kQueries));
  Stages<dim, kQueries> stages{values + kTileSize<dim, kTensorRows>,
                               p.copies<dim, kQueries>(p.q, job, start),
                               p.copies<dim, kQueries>(p.dout, job, start)};
  auto* const all_terms = reinterpret_cast<RowTerms*>(stages.end());  // of both stages
  const int place = static_cast<int>(threadIdx.x) * kTermsPerCopy;
  const RowTerms* next_terms = p.terms_of(job, start + place);

  HalfSums<dim> dk = {}, dv = {};
  // Processes a part of the tile: kN queries, starting at query `part`.
  const auto use_part = [&](int step, int part, auto whole) {
    const bf16* const queries = stages.first(step) + part * kRowStride<dim>;
    const bf16* const douts = stages.second(step) + part * kRowStride<dim>;
    const RowTerms* const terms = all_terms + step % 2 * kQueries + part;
    HalfSums<kN> scores = {}, dp = {};
    add_scores<dim, kN>(scores, keys, row, queries);
    if constexpr (kKeys) add_scores<dim, kN>(dp, values, row, douts);
    // The queries of a key are `count` columns, starting at `from`.
    const int begin = start + step * kQueries + part;
    int from[2];
    unsigned count[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int key = first + row + row_of(2 * h);
      from[h] = p.s.causal && key > begin ? key - begin : 0;
      count[h] = begin + from[h] < tokens ? static_cast<unsigned>(tokens - begin - from[h]) : 0;
    }
#pragma unroll
    for (int j = 0; j < kN / 8; ++j) {
      const auto two = load_pack<2>(terms + column_of(j, 0), 0);
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const RowTerms& t = two.at[q % 2];
        float probable = exp2_fast(multiply_add(scores[j][q], p.scale2, -t.log_sum));
        float ds = probable * (dp[j][q] - t.dot);
        if constexpr (!decltype(whole)::value) {
          if (static_cast<unsigned>(column_of(j, q) - from[q / 2]) >= count[q / 2])
            probable = ds = 0;
        }
        scores[j][q] = probable;
        dp[j][q] = ds;
      }
    }
    if constexpr (kValues) add_mix<dim, kN>(dv, scores, douts);
    if constexpr (kKeys) add_mix<dim, kN>(dk, dp, queries);
  };
  const auto fetch = [&](int step) {
    stages.fetch(step, start + step * kQueries);
    if (place < kQueries)
      copy_async_or_zeros(all_terms + step % 2 * kQueries + place, next_terms, true);
    next_terms += kQueries;
  };

  p.copies<dim, kTensorRows>(p.k, job, first).start(keys, first);
  if constexpr (kKeys) p.copies<dim, kTensorRows>(p.v, job, first).start(values, first);
  fetch(0);
  commit_copies();
  for (int step = 0; step < steps; ++step) {
    wait_for_copies<0>();
    __syncthreads();
    if (step + 1 < steps) fetch(step + 1);
    commit_copies();
    const int begin = start + step * kQueries;
    if (begin + kQueries <= tokens && !(p.s.causal && begin < first + kTensorRows - 1)) {
#pragma unroll
      for (int part = 0; part < kQueries; part += kN) use_part(step, part, std::true_type());
    } else {
#pragma unroll
      for (int part = 0; part < kQueries; part += kN) use_part(step, part, std::false_type());
    }
  }
  const float scales[2] = {p.scale, p.scale}, ones[2] = {1, 1};
  if constexpr (kKeys) store_rows<dim>(dk, scales, p.dk, job, p.s, p.pairs, first + row);
  if constexpr (kValues) store_rows<dim>(dv, ones, p.dv, job, p.s, p.pairs, first + row);
}

// Writes each_head terms for each head.
void row_terms(const Heads<const bf16>& dout, const AttentionBf16Saved& saved, RowTerms* terms,
               std::int64_t each_head, const AttentionShape& s) {
  const RowStatistic<float>* const statistics = saved.statistics.data();
  row_dots<float>(dout, saved.out, s, each_head,
                  [=] __device__(std::int64_t head, std::int64_t token, float dot) {
                    float log_sum = 0;
                    if (token < s.tokens) {
                      const RowStatistic<float> row = statistics[head * s.tokens + token];
                      log_sum = multiply_add(row.largest, kLog2E, -log2f(row.inverse_sum));
                    }
                    terms[head * each_head + token] = {log_sum, dot};
                  });
}

void check(const AttentionShape& s) {
  require(s.dim >= 1 && s.dim <= kMostDim,
          "attention on tensor cores: dim must be 1 to 128, got " + std::to_string(s.dim));
  require(s.tokens <= kMostTiles * kTensorRows && s.batch <= kMostBatches,
          "attention on tensor cores: at most 4194240 tokens and 65535 batches, got " +
              std::to_string(s.tokens) + " and " + std::to_string(s.batch));
  require_tensor_cores();
}

}  // namespace

bool has_attention_bf16(const AttentionShape& s) {
#ifdef RINGSMITH_VGPU
  if (matmul_version() < 7) return false;
#endif
  return s.dim >= 1 && s.dim <= kMostDim && s.tokens <= kMostTiles * kTensorRows &&
         s.batch <= kMostBatches && has_tensor_cores();
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
  p.scale2 = p.scale * kLog2E;
  p.packs = half_packs(q, s) && half_packs(k, s) && half_packs(v, s);
  p.pairs = half_pairs(out, s);
  visit_dim(s.dim, [&]<int dim>(std::integral_constant<int, dim>) {
    launch_tiles(forward<dim>, s, kTileSize<dim, kTensorRows> + 4 * kTileSize<dim, kAlong<dim>>, p);
  });
}

void attention_backward_bf16(Heads<const bf16> dout, const AttentionBf16Saved& saved,
                             Heads<bf16> dq, Heads<bf16> dk, Heads<bf16> dv,
                             const AttentionShape& s) {
  check(s);
  const std::int64_t terms_each = ceil_div(s.tokens, kTensorRows) * kTensorRows;
  const Scratch<RowTerms> terms(std::max<std::int64_t>(s.batch * s.heads * terms_each, 1));
  row_terms(dout, saved, terms.data(), terms_each, s);
  Problem p{};
  p.q = saved.q;
  p.k = saved.k;
  p.v = saved.v;
  p.dout = dout;
  p.dq = dq;
  p.dk = dk;
  p.dv = dv;
  p.terms = terms.data();
  p.terms_each = terms_each;
  p.s = s;
  p.scale = 1 / std::sqrt(static_cast<float>(s.dim));
  p.scale2 = p.scale * kLog2E;
  p.packs = half_packs(p.q, s) && half_packs(p.k, s) && half_packs(p.v, s) && half_packs(dout, s);
  p.pairs = half_pairs(dq, s) && half_pairs(dk, s) && half_pairs(dv, s);
  visit_dim(s.dim, [&]<int dim>(std::integral_constant<int, dim>) {
    constexpr int kRows = kAlong<dim>;
    constexpr std::size_t kTiles = 2 * kTileSize<dim, kTensorRows> + 4 * kTileSize<dim, kRows>;
    constexpr std::size_t kTerms = 2 * kRows * sizeof(RowTerms) / sizeof(bf16);
    if constexpr (dim == 128) {
      launch_tiles(backward_keys<dim, Gradients::values>, s, kTiles + kTerms, p);
      launch_tiles(backward_keys<dim, Gradients::keys>, s, kTiles + kTerms, p);
    } else {
      launch_tiles(backward_keys<dim, Gradients::both>, s, kTiles + kTerms, p);
    }
    launch_tiles(backward_queries<dim>, s, kTiles, p);
  });
}

}  // namespace ringsmith::kernels::cuda
