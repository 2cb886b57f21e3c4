// The oracles of attention. In Mode::fast they call the fast versions.
#include "kernels/attention.hpp"

#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/mode.hpp"

namespace ringsmith::kernels::cpu {

namespace {

// Calls f(b, h, index of the head's first row of scores) for each head.
template <class F>
void for_each_head(const AttentionShape& s, const F& f) {
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h) f(b, h, (b * s.heads + h) * s.tokens);
}

template <class T>
T row_dot(const T* a, const T* b, std::int64_t n) {
  T sum{};
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

template <class T>
void attention(Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<T> out,
               std::span<RowStatistic<T>> statistics, const AttentionShape& s) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast) return fast::attention(q, k, v, out, statistics, s);
  const T root = std::sqrt(static_cast<T>(s.dim));
  std::vector<T> p(static_cast<std::size_t>(s.tokens));
  for_each_head(s, [&](std::int64_t b, std::int64_t h, std::int64_t first) {
    for (std::int64_t i = 0; i < s.tokens; ++i) {
      const std::int64_t columns = s.causal ? i + 1 : s.tokens;
      const T* query = q.head(b, h) + i * q.token_stride;
      T largest = -std::numeric_limits<T>::infinity();
      for (std::int64_t j = 0; j < columns; ++j) {
        const T score = row_dot(query, k.head(b, h) + j * k.token_stride, s.dim) / root;
        p[static_cast<std::size_t>(j)] = score;
        if (score > largest || std::isnan(score)) largest = score;
      }
      T sum{};
      for (std::int64_t j = 0; j < columns; ++j) {
        T& value = p[static_cast<std::size_t>(j)];
        value = std::exp(value - largest);
        sum += value;
      }
      statistics[static_cast<std::size_t>(first + i)] = {largest, 1 / sum};
      for (std::int64_t d = 0; d < s.dim; ++d) {
        T value{};
        for (std::int64_t j = 0; j < columns; ++j)
          value += p[static_cast<std::size_t>(j)] / sum * v.head(b, h)[j * v.token_stride + d];
        out.head(b, h)[i * out.token_stride + d] = value;
      }
    }
  });
}

template <class T>
void attention_backward(Heads<const T> dout, const AttentionSaved<T>& saved, Heads<T> dq,
                        Heads<T> dk, Heads<T> dv, const AttentionShape& s) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast) return fast::attention_backward(dout, saved, dq, dk, dv, s);
  const T root = std::sqrt(static_cast<T>(s.dim));
  for_each_head(s, [&](std::int64_t b, std::int64_t h, std::int64_t first) {
    for (const Heads<T>& grad : {dq, dk, dv})
      for (std::int64_t i = 0; i < s.tokens; ++i)
        for (std::int64_t d = 0; d < s.dim; ++d) grad.head(b, h)[i * grad.token_stride + d] = 0;
    for (std::int64_t i = 0; i < s.tokens; ++i) {
      const T* query = saved.q.head(b, h) + i * saved.q.token_stride;
      const T* dy = dout.head(b, h) + i * dout.token_stride;
      const T mean = row_dot(dy, saved.out.head(b, h) + i * saved.out.token_stride, s.dim);
      const RowStatistic<T> row = saved.statistics[static_cast<std::size_t>(first + i)];
      for (std::int64_t j = 0; j < (s.causal ? i + 1 : s.tokens); ++j) {
        const T* key = saved.k.head(b, h) + j * saved.k.token_stride;
        const T p = std::exp(row_dot(query, key, s.dim) / root - row.largest) * row.inverse_sum;
        const T dp = row_dot(dy, saved.v.head(b, h) + j * saved.v.token_stride, s.dim);
        const T ds = p * (dp - mean) / root;
        for (std::int64_t d = 0; d < s.dim; ++d) {
          dv.head(b, h)[j * dv.token_stride + d] += p * dy[d];
          dq.head(b, h)[i * dq.token_stride + d] += ds * key[d];
          dk.head(b, h)[j * dk.token_stride + d] += ds * query[d];
        }
      }
    }
  });
}

RINGSMITH_FLOAT_AND_DOUBLE(attention)
RINGSMITH_FLOAT_AND_DOUBLE(attention_backward)

}  // namespace ringsmith::kernels::cpu
