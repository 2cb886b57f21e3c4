// Scaled dot-product attention: the slow, simple version, and the choice of version.
//
//   1  one thread per row. It loops over the keys for a row of out or dq, and over the queries for
//      a row of dk and dv. Recomputes scores whenever they are needed. float and double, any dim;
//      used only where version 2 is not available
//   2  tiles in shared memory (attention_forward.cu, attention_backward.cu): float, dim up to 128
//   3  bf16 on tensor cores (attention_tensor.cu), under a separate name: attention_bf16
#include <cmath>

#include "kernels/attention.hpp"
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/elementwise_math.cuh"
#include "kernels/cuda/row_dots.cuh"
#include "kernels/cuda/scratch.hpp"
#include "kernels/cuda/tree.cuh"

namespace ringsmith::kernels::cuda {

namespace {

template <class T>
__device__ T dot(const T* a, const T* b, std::int64_t n) {
  T sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum = multiply_add(a[i], b[i], sum);
  return sum;
}

// Calls f(batch, head, token, row) on the device, for every row of scores.
template <class F>
void for_each_row(const AttentionShape& s, const F& f) {
  for_each(s.rows(), [=] __device__(std::int64_t row) {
    std::int64_t batch = row;
    const std::int64_t token = take_digit(batch, s.tokens), head = take_digit(batch, s.heads);
    f(batch, head, token, row);
  });
}

template <class T>
void attention_rows(Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<T> out,
                    RowStatistic<T>* statistics, const AttentionShape& s) {
  const T scale = 1 / std::sqrt(static_cast<T>(s.dim));
  for_each_row(s, [=] __device__(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t row) {
    const T* const query = q.head(b, h) + i * q.token_stride;
    const T* const keys = k.head(b, h);
    T* const to = out.head(b, h) + i * out.token_stride;
    const std::int64_t end = s.causal ? i + 1 : s.tokens;
    T largest = -INFINITY, sum = 0;
    for (std::int64_t j = 0; j < end; ++j)
      largest = Larger{}(largest, dot(query, keys + j * k.token_stride, s.dim) * scale);
    for (std::int64_t d = 0; d < s.dim; ++d) to[d] = 0;
    for (std::int64_t j = 0; j < end; ++j) {
      const T p = exp_of(dot(query, keys + j * k.token_stride, s.dim) * scale - largest);
      const T* const value = v.head(b, h) + j * v.token_stride;
      for (std::int64_t d = 0; d < s.dim; ++d) to[d] = multiply_add(p, value[d], to[d]);
      sum += p;
    }
    for (std::int64_t d = 0; d < s.dim; ++d) to[d] /= sum;
    statistics[row] = {largest, 1 / sum};
  });
}

template <class T>
void row_dots_of(Heads<const T> dout, Heads<const T> out, T* dots, const AttentionShape& s) {
  row_dots<T>(dout, out, s, s.tokens, [=] __device__(std::int64_t head, std::int64_t token, T sum) {
    dots[head * s.tokens + token] = sum;
  });
}

template <class T>
void attention_backward_rows(Heads<const T> dout, const AttentionSaved<T>& saved, const T* dots,
                             Heads<T> dq, Heads<T> dk, Heads<T> dv, const AttentionShape& s) {
  const T scale = 1 / std::sqrt(static_cast<T>(s.dim));
  const Heads<const T> q = saved.q, k = saved.k, v = saved.v;
  const RowStatistic<T>* const statistics = saved.statistics.data();
  // Returns P of query i and key j, and sets ds to dS.
  const auto gradient = [=] __device__(std::int64_t b, std::int64_t h, std::int64_t i,
                                       std::int64_t j, T & ds) {
    const std::int64_t row = (b * s.heads + h) * s.tokens + i;
    const T score =
        dot(q.head(b, h) + i * q.token_stride, k.head(b, h) + j * k.token_stride, s.dim);
    const T dp =
        dot(dout.head(b, h) + i * dout.token_stride, v.head(b, h) + j * v.token_stride, s.dim);
    const T p = exp_of(score * scale - statistics[row].largest) * statistics[row].inverse_sum;
    ds = p * (dp - dots[row]) * scale;
    return p;
  };
  const auto add = [=] __device__(T factor, const T* from, T* to) {
    for (std::int64_t d = 0; d < s.dim; ++d) to[d] = multiply_add(factor, from[d], to[d]);
  };
  for_each_row(s, [=] __device__(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t) {
    T* const to = dq.head(b, h) + i * dq.token_stride;
    for (std::int64_t d = 0; d < s.dim; ++d) to[d] = 0;
    for (std::int64_t j = 0; j < (s.causal ? i + 1 : s.tokens); ++j) {
      T ds;
      (void)gradient(b, h, i, j, ds);
      add(ds, k.head(b, h) + j * k.token_stride, to);
    }
  });
  for_each_row(s, [=] __device__(std::int64_t b, std::int64_t h, std::int64_t j, std::int64_t) {
    T* const to_k = dk.head(b, h) + j * dk.token_stride;
    T* const to_v = dv.head(b, h) + j * dv.token_stride;
    for (std::int64_t d = 0; d < s.dim; ++d) to_k[d] = to_v[d] = 0;
    for (std::int64_t i = s.causal ? j : 0; i < s.tokens; ++i) {
      T ds;
      const T p = gradient(b, h, i, j, ds);
      add(p, dout.head(b, h) + i * dout.token_stride, to_v);
      add(ds, q.head(b, h) + i * q.token_stride, to_k);
    }
  });
}

}  // namespace

template <class T>
void attention(Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<T> out,
               std::span<RowStatistic<T>> statistics, const AttentionShape& shape) {
  if constexpr (std::is_same_v<T, float>)
    if (attention_tiled(q, k, v, out, statistics.data(), shape)) return;
  attention_rows(q, k, v, out, statistics.data(), shape);
}

template <class T>
void attention_backward(Heads<const T> dout, const AttentionSaved<T>& saved, Heads<T> dq,
                        Heads<T> dk, Heads<T> dv, const AttentionShape& shape) {
  const Scratch<T> dots(shape.rows());
  row_dots_of(dout, saved.out, dots.data(), shape);
  if constexpr (std::is_same_v<T, float>)
    if (attention_backward_tiled(dout, saved, dots.data(), dq, dk, dv, shape)) return;
  attention_backward_rows<T>(dout, saved, dots.data(), dq, dk, dv, shape);
}

RINGSMITH_FLOAT_AND_DOUBLE(attention)
RINGSMITH_FLOAT_AND_DOUBLE(attention_backward)

}  // namespace ringsmith::kernels::cuda
