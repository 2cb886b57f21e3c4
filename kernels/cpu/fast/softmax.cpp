// Softmax over the last dimension processes one slice at a time. Over any other dimension, it
// processes `inner` neighbouring slices together, so that memory is always read in order.
#include "kernels/softmax.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/cpu/fast/rows.hpp"
#include "kernels/cpu/fast/vecmath.hpp"
#include "kernels/parallel.hpp"

namespace ringsmith::kernels::cpu::fast {

namespace {

constexpr std::int64_t kSliceGrain = 8192;  // elements that justify another thread

// Calls f(offset) for each outer slice, from several threads.
template <class F>
void for_each_outer(Slices s, const F& f) {
  const std::int64_t size = s.n * s.inner;
  if (size == 0) return;
  parallel_for(s.outer, grain_of(size, kSliceGrain), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o) f(o * size);
  });
}

// Sets m[i] to the largest element of column i, or to NaN if the column contains one. Sets sum[i]
// to the sum of exp(x - m[i]) over the column.
void column_statistics(const float* x, std::int64_t n, std::int64_t inner, float* __restrict m,
                       float* __restrict sum) {
  std::copy(x, x + inner, m);
  for (std::int64_t j = 1; j < n; ++j)
    for (std::int64_t i = 0; i < inner; ++i) {
      const float value = x[j * inner + i];
      m[i] = m[i] >= value || m[i] != m[i] ? m[i] : value;
    }
  std::fill(sum, sum + inner, 0.0F);
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = 0; i < inner; ++i) sum[i] += vec::exp(x[j * inner + i] - m[i]);
}

}  // namespace

void softmax(std::span<const float> in, std::span<float> out, Slices s) {
  for_each_outer(s, [&](std::int64_t offset) {
    const float* x = in.data() + offset;
    float* y = out.data() + offset;
    if (s.inner == 1) {
      const float m = row_max_of(s.n, x);
      for (std::int64_t j = 0; j < s.n; ++j) y[j] = vec::exp(x[j] - m);
      const float scale = 1.0F / row_sum_of(s.n, [y](std::int64_t j) { return y[j]; });
      for (std::int64_t j = 0; j < s.n; ++j) y[j] *= scale;
      return;
    }
    std::vector<float> m(static_cast<std::size_t>(s.inner)), sum(m);
    column_statistics(x, s.n, s.inner, m.data(), sum.data());
    for (std::int64_t j = 0; j < s.n; ++j)
      for (std::int64_t i = 0; i < s.inner; ++i) {
        const auto c = static_cast<std::size_t>(i);
        y[j * s.inner + i] = vec::exp(x[j * s.inner + i] - m[c]) / sum[c];
      }
  });
}

void log_softmax(std::span<const float> in, std::span<float> out, Slices s) {
  for_each_outer(s, [&](std::int64_t offset) {
    const float* x = in.data() + offset;
    float* y = out.data() + offset;
    if (s.inner == 1) {
      const float m = row_max_of(s.n, x);
      const float log_sum =
          std::log(row_sum_of(s.n, [x, m](std::int64_t j) { return vec::exp(x[j] - m); }));
      for (std::int64_t j = 0; j < s.n; ++j) y[j] = x[j] - m - log_sum;
      return;
    }
    std::vector<float> m(static_cast<std::size_t>(s.inner)), sum(m);
    column_statistics(x, s.n, s.inner, m.data(), sum.data());
    for (float& value : sum) value = vec::log(value);
    for (std::int64_t j = 0; j < s.n; ++j)
      for (std::int64_t i = 0; i < s.inner; ++i) {
        const auto c = static_cast<std::size_t>(i);
        y[j * s.inner + i] = x[j * s.inner + i] - m[c] - sum[c];
      }
  });
}

void softmax_backward(std::span<const float> grad, std::span<const float> out,
                      std::span<float> result, Slices s) {
  for_each_outer(s, [&](std::int64_t offset) {
    const float* dy = grad.data() + offset;
    const float* y = out.data() + offset;
    float* dx = result.data() + offset;
    if (s.inner == 1) {
      const float dot = row_sum_of(s.n, [dy, y](std::int64_t j) { return dy[j] * y[j]; });
      for (std::int64_t j = 0; j < s.n; ++j) dx[j] = (dy[j] - dot) * y[j];
      return;
    }
    std::vector<float> dot(static_cast<std::size_t>(s.inner));
    for (std::int64_t j = 0; j < s.n; ++j)
      for (std::int64_t i = 0; i < s.inner; ++i)
        dot[static_cast<std::size_t>(i)] += dy[j * s.inner + i] * y[j * s.inner + i];
    for (std::int64_t j = 0; j < s.n; ++j)
      for (std::int64_t i = 0; i < s.inner; ++i)
        dx[j * s.inner + i] =
            (dy[j * s.inner + i] - dot[static_cast<std::size_t>(i)]) * y[j * s.inner + i];
  });
}

void log_softmax_backward(std::span<const float> grad, std::span<const float> out,
                          std::span<float> result, Slices s) {
  for_each_outer(s, [&](std::int64_t offset) {
    const float* dy = grad.data() + offset;
    const float* y = out.data() + offset;
    float* dx = result.data() + offset;
    if (s.inner == 1) {
      const float sum = row_sum_of(s.n, [dy](std::int64_t j) { return dy[j]; });
      for (std::int64_t j = 0; j < s.n; ++j) dx[j] = dy[j] - vec::exp(y[j]) * sum;
      return;
    }
    std::vector<float> sum(static_cast<std::size_t>(s.inner));
    for (std::int64_t j = 0; j < s.n; ++j)
      for (std::int64_t i = 0; i < s.inner; ++i)
        sum[static_cast<std::size_t>(i)] += dy[j * s.inner + i];
    for (std::int64_t j = 0; j < s.n; ++j)
      for (std::int64_t i = 0; i < s.inner; ++i)
        dx[j * s.inner + i] =
            dy[j * s.inner + i] - vec::exp(y[j * s.inner + i]) * sum[static_cast<std::size_t>(i)];
  });
}

}  // namespace ringsmith::kernels::cpu::fast
