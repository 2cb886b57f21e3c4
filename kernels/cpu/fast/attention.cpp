// Computes the scores in tiles of kTile query rows. A causal tile ends at its last row's diagonal,
// so most of the upper triangle is never computed. Scores beyond a row's diagonal are set to -inf,
// whose exp is 0, so all rows of a tile have the same length.
//
//      keys ->          tile 0: |##|            each tile: S by one small product, softmax in
//   queries             tile 1: |####|          place, out (or the gradients) by further small
//      |                tile 2: |######|        products, all within L2
//      v                tile 3: |########|
#include "kernels/attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "kernels/cpu/fast/rows.hpp"
#include "kernels/cpu/fast/transpose.hpp"
#include "kernels/cpu/fast/vecmath.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/parallel.hpp"

namespace ringsmith::kernels::cpu::fast {

namespace {

constexpr std::int64_t kTile = 64;

// The rows [begin, end) of a head and the number of keys that they attend to.
struct Tile {
  std::int64_t begin, end, keys;
  [[nodiscard]] std::int64_t rows() const { return end - begin; }
};
Tile tile_at(std::int64_t begin, const AttentionShape& s) {
  const std::int64_t end = std::min(s.tokens, begin + kTile);
  return {begin, end, s.causal ? end : s.tokens};
}

// Computes the unscaled scores of a tile, in rows of tile.keys elements. keys_t is k^T of the whole
// head (dim x tokens): a product that transposes on the fly is slower.
void scores(const Tile& t, const float* q, std::int64_t q_stride, const float* keys_t,
            const AttentionShape& s, float* out) {
  sgemm({.m = t.rows(),
         .n = t.keys,
         .k = s.dim,
         .a = q + t.begin * q_stride,
         .lda = q_stride,
         .b = keys_t,
         .ldb = s.tokens,
         .c = out,
         .ldc = t.keys});
}

void mask_row(float* row, std::int64_t i, std::int64_t keys, const AttentionShape& s) {
  if (s.causal) std::fill(row + i + 1, row + keys, -std::numeric_limits<float>::infinity());
}

RowStatistic<float> softmax_row(float* p, std::int64_t n, float scale) {
  const float largest = row_max_of(n, p) * scale;
  for (std::int64_t j = 0; j < n; ++j) p[j] = vec::exp(p[j] * scale - largest);
  const float inverse = 1.0F / row_sum_of(n, [p](std::int64_t j) { return p[j]; });
  for (std::int64_t j = 0; j < n; ++j) p[j] *= inverse;
  return {largest, inverse};
}

// Turns scores p into probabilities, and their gradients dp into gradients of the scores.
void softmax_row_backward(float* __restrict p, float* __restrict dp, std::int64_t n, float scale,
                          RowStatistic<float> row, float mean) {
  for (std::int64_t j = 0; j < n; ++j) {
    const float value = vec::exp(p[j] * scale - row.largest) * row.inverse_sum;
    p[j] = value;
    dp[j] = value * (dp[j] - mean) * scale;
  }
}

struct Workspace {
  explicit Workspace(const AttentionShape& s)
      : keys_t(static_cast<std::size_t>(s.dim * s.tokens)),
        values_t(keys_t.size()),
        p(static_cast<std::size_t>(std::min(kTile, s.tokens) * s.tokens)),
        ds(p.size()) {}
  std::vector<float> keys_t, values_t, p, ds;
};

// Calls f(workspace, b, h, index of the head's first score row) from several threads.
template <class F>
void for_each_head(const AttentionShape& s, const F& f) {
  if (s.tokens == 0 || s.dim == 0) return;
  parallel_for(s.batch * s.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    Workspace work(s);
    for (std::int64_t i = begin; i < end; ++i) f(work, i / s.heads, i % s.heads, i * s.tokens);
  });
}

}  // namespace

void attention(Heads<const float> q, Heads<const float> k, Heads<const float> v, Heads<float> out,
               std::span<RowStatistic<float>> statistics, const AttentionShape& s) {
  const float scale = 1.0F / std::sqrt(static_cast<float>(s.dim));
  for_each_head(s, [&](Workspace& work, std::int64_t b, std::int64_t h, std::int64_t first) {
    transpose(k.head(b, h), k.token_stride, s.tokens, s.dim, work.keys_t.data(), s.tokens);
    for (std::int64_t begin = 0; begin < s.tokens; begin += kTile) {
      const Tile tile = tile_at(begin, s);
      scores(tile, q.head(b, h), q.token_stride, work.keys_t.data(), s, work.p.data());
      for (std::int64_t i = tile.begin; i < tile.end; ++i) {
        float* row = work.p.data() + (i - tile.begin) * tile.keys;
        mask_row(row, i, tile.keys, s);
        statistics[static_cast<std::size_t>(first + i)] = softmax_row(row, tile.keys, scale);
      }
      sgemm({.m = tile.rows(),
             .n = s.dim,
             .k = tile.keys,
             .a = work.p.data(),
             .lda = tile.keys,
             .b = v.head(b, h),
             .ldb = v.token_stride,
             .c = out.head(b, h) + tile.begin * out.token_stride,
             .ldc = out.token_stride});
    }
  });
}

void attention_backward(Heads<const float> dout, const AttentionSaved<float>& saved,
                        Heads<float> dq, Heads<float> dk, Heads<float> dv,
                        const AttentionShape& s) {
  const float scale = 1.0F / std::sqrt(static_cast<float>(s.dim));
  for_each_head(s, [&](Workspace& work, std::int64_t b, std::int64_t h, std::int64_t first) {
    const auto [q, k, v, out, statistics] = saved;
    float* p = work.p.data();
    float* ds = work.ds.data();
    transpose(k.head(b, h), k.token_stride, s.tokens, s.dim, work.keys_t.data(), s.tokens);
    transpose(v.head(b, h), v.token_stride, s.tokens, s.dim, work.values_t.data(), s.tokens);
    // The last tile goes first, because it attends to every key: it overwrites dk and dv, and the
    // other tiles add to them.
    for (std::int64_t begin = (s.tokens - 1) / kTile * kTile; begin >= 0; begin -= kTile) {
      const Tile tile = tile_at(begin, s);
      const float add = tile.end == s.tokens ? 0.0F : 1.0F;
      const float* dy = dout.head(b, h) + tile.begin * dout.token_stride;
      scores(tile, q.head(b, h), q.token_stride, work.keys_t.data(), s, p);
      sgemm({.m = tile.rows(),
             .n = tile.keys,
             .k = s.dim,
             .a = dy,
             .lda = dout.token_stride,
             .b = work.values_t.data(),
             .ldb = s.tokens,
             .c = ds,
             .ldc = tile.keys});
      for (std::int64_t i = tile.begin; i < tile.end; ++i) {
        float* row = p + (i - tile.begin) * tile.keys;
        mask_row(row, i, tile.keys, s);
        const float* g = dout.head(b, h) + i * dout.token_stride;
        const float* y = out.head(b, h) + i * out.token_stride;
        const float mean = row_sum_of(s.dim, [g, y](std::int64_t d) { return g[d] * y[d]; });
        softmax_row_backward(row, ds + (i - tile.begin) * tile.keys, tile.keys, scale,
                             statistics[static_cast<std::size_t>(first + i)], mean);
      }
      sgemm({.trans_a = Transpose::yes,
             .m = tile.keys,
             .n = s.dim,
             .k = tile.rows(),
             .a = p,
             .lda = tile.keys,
             .b = dy,
             .ldb = dout.token_stride,
             .beta = add,
             .c = dv.head(b, h),
             .ldc = dv.token_stride});
      sgemm({.trans_a = Transpose::yes,
             .m = tile.keys,
             .n = s.dim,
             .k = tile.rows(),
             .a = ds,
             .lda = tile.keys,
             .b = q.head(b, h) + tile.begin * q.token_stride,
             .ldb = q.token_stride,
             .beta = add,
             .c = dk.head(b, h),
             .ldc = dk.token_stride});
      sgemm({.m = tile.rows(),
             .n = s.dim,
             .k = tile.keys,
             .a = ds,
             .lda = tile.keys,
             .b = k.head(b, h),
             .ldb = k.token_stride,
             .c = dq.head(b, h) + tile.begin * dq.token_stride,
             .ldc = dq.token_stride});
    }
  });
}

}  // namespace ringsmith::kernels::cpu::fast
