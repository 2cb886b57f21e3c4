// The oracles of layer normalisation. In Mode::fast, those with a fast version call it.
#include "kernels/layernorm.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>

#include "kernels/cpu/cascade.hpp"
#include "kernels/mode.hpp"

namespace ringsmith::kernels::cpu {

template <class T>
void layer_norm(std::span<const T> x, std::span<const T> weight, std::span<const T> bias,
                double eps, std::span<T> y, std::span<Wide<T>> mean, std::span<Wide<T>> rstd) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast) return fast::layer_norm(x, weight, bias, eps, y, mean, rstd);
  const std::size_t n = mean.empty() ? 0 : x.size() / mean.size();
  const T count = static_cast<T>(n);
  for (std::size_t r = 0; r < mean.size(); ++r) {
    const T* row = x.data() + r * n;
    const auto length = static_cast<std::int64_t>(n);
    const T m = contiguous_sum<T>(length, [&](std::int64_t i) { return row[i]; }) / count;
    const T variance =
        contiguous_sum<T>(length, [&](std::int64_t i) { return (row[i] - m) * (row[i] - m); }) /
        count;
    mean[r] = m;
    rstd[r] = 1 / std::sqrt(variance + static_cast<T>(eps));
    for (std::size_t i = 0; i < n; ++i) {
      const T normal = (row[i] - m) * rstd[r];
      y[r * n + i] = (weight.empty() ? normal : normal * weight[i]) + (bias.empty() ? 0 : bias[i]);
    }
  }
}

template <class T>
void layer_norm_backward(std::span<const T> dy, std::span<const T> x, std::span<const T> weight,
                         std::span<const Wide<T>> mean, std::span<const Wide<T>> rstd,
                         std::span<T> dx, std::span<T> dweight, std::span<T> dbias) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast)
      return fast::layer_norm_backward(dy, x, weight, mean, rstd, dx, dweight, dbias);
  const std::size_t rows = mean.size();
  const std::size_t n = std::max({dweight.size(), dbias.size(), rows == 0 ? 0 : x.size() / rows});
  const auto xhat = [&](std::size_t r, std::size_t i) {
    return (x[r * n + i] - mean[r]) * rstd[r];
  };
  const auto scaled = [&](std::size_t r, std::size_t i) {
    return weight.empty() ? dy[r * n + i] : dy[r * n + i] * weight[i];
  };
  for (std::size_t r = 0; r < rows && !dx.empty(); ++r) {
    T sum = 0, dot = 0;
    for (std::size_t i = 0; i < n; ++i) {
      sum += scaled(r, i);
      dot += scaled(r, i) * xhat(r, i);
    }
    sum /= static_cast<T>(n);
    dot /= static_cast<T>(n);
    for (std::size_t i = 0; i < n; ++i)
      dx[r * n + i] = (scaled(r, i) - sum - xhat(r, i) * dot) * rstd[r];
  }
  const auto height = static_cast<std::int64_t>(rows), width = static_cast<std::int64_t>(n);
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  if (!dweight.empty())
    column_sums<T>(
        height, width,
        [&](std::int64_t r, std::int64_t i) { return dy[at(r) * n + at(i)] * xhat(at(r), at(i)); },
        dweight.data());
  if (!dbias.empty())
    column_sums<T>(
        height, width, [&](std::int64_t r, std::int64_t i) { return dy[at(r) * n + at(i)]; },
        dbias.data());
}

template <class T>
void add_layer_norm(std::span<const T> x, std::span<const T> residual, std::span<const T> weight,
                    std::span<const T> bias, double eps, std::span<T> sum, std::span<T> y,
                    std::span<T> mean, std::span<T> rstd) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = x[i] + residual[i];
  layer_norm<T>(sum, weight, bias, eps, y, mean, rstd);
}

template <class T>
void add_layer_norm_backward(std::span<const T> dy, std::span<const T> dsum, std::span<const T> sum,
                             std::span<const T> weight, std::span<const T> mean,
                             std::span<const T> rstd, std::span<T> dx, std::span<T> dweight,
                             std::span<T> dbias) {
  layer_norm_backward<T>(dy, sum, weight, mean, rstd, dx, dweight, dbias);
  for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = dx[i] + dsum[i];
}

RINGSMITH_FLOAT_AND_DOUBLE(add_layer_norm)
RINGSMITH_FLOAT_AND_DOUBLE(add_layer_norm_backward)
RINGSMITH_FLOAT_AND_DOUBLE(layer_norm)
RINGSMITH_FLOAT_AND_DOUBLE(layer_norm_backward)

}  // namespace ringsmith::kernels::cpu
