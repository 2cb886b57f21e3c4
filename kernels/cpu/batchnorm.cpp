// Batch normalisation: the oracles, which hand over to the fast versions in Mode::fast.
#include "kernels/batchnorm.hpp"

#include <cmath>

#include "kernels/mode.hpp"

namespace ringsmith::kernels::cpu {

namespace {

template <class F>
void for_each_of_channel(const BatchNormShape& s, std::int64_t c, const F& f) {  // f(flat position)
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t p = 0; p < s.pixels; ++p)
      f(static_cast<std::size_t>((n * s.c + c) * s.pixels + p));
}

}  // namespace

template <class T>
void batch_stats(const BatchNormShape& s, std::span<const T> x, std::span<T> mean,
                 std::span<T> var) {
  if (mode() == Mode::fast) return fast::batch_stats(s, x, mean, var);
  const auto count = static_cast<double>(s.per_channel());
  for (std::int64_t c = 0; c < s.c; ++c) {
    double sum = 0, squares = 0;
    for_each_of_channel(s, c, [&](std::size_t i) { sum += x[i]; });
    const double m = sum / count;
    for_each_of_channel(s, c, [&](std::size_t i) { squares += (x[i] - m) * (x[i] - m); });
    mean[static_cast<std::size_t>(c)] = static_cast<T>(m);
    var[static_cast<std::size_t>(c)] = static_cast<T>(squares / count);
  }
}

template <class T>
void batch_norm(const BatchNormShape& s, std::span<const T> x, std::span<const T> mean,
                std::span<const T> inv_std, std::span<const T> weight, std::span<const T> bias,
                std::span<T> y) {
  if (mode() == Mode::fast) return fast::batch_norm(s, x, mean, inv_std, weight, bias, y);
  for (std::size_t c = 0; c < static_cast<std::size_t>(s.c); ++c)
    for_each_of_channel(s, static_cast<std::int64_t>(c), [&](std::size_t i) {
      y[i] = (x[i] - mean[c]) * inv_std[c] * weight[c] + bias[c];
    });
}

template <class T>
void batch_norm_grad(const BatchNormShape& s, std::span<const T> dy, std::span<const T> x,
                     std::span<const T> mean, std::span<const T> inv_std, std::span<const T> weight,
                     bool batch_statistics, std::span<T> dx, std::span<T> dweight,
                     std::span<T> dbias) {
  if (mode() == Mode::fast)
    return fast::batch_norm_grad(s, dy, x, mean, inv_std, weight, batch_statistics, dx, dweight,
                                 dbias);
  const auto count = static_cast<double>(s.per_channel());
  for (std::size_t c = 0; c < static_cast<std::size_t>(s.c); ++c) {
    const auto channel = static_cast<std::int64_t>(c);
    const double m = mean[c], r = inv_std[c];
    double sum = 0, dot = 0;  // of dy, and of dy with the normalised x
    for_each_of_channel(s, channel, [&](std::size_t i) {
      sum += dy[i];
      dot += dy[i] * ((x[i] - m) * r);
    });
    for_each_of_channel(s, channel, [&](std::size_t i) {
      double g = dy[i];  // gradient of the normalised x, less its mean and its part along x
      if (batch_statistics) g -= sum / count + (x[i] - m) * r * (dot / count);
      dx[i] = static_cast<T>(g * r * weight[c]);
    });
    dweight[c] = static_cast<T>(dot);
    dbias[c] = static_cast<T>(sum);
  }
}

template <class T>
void update_running(std::span<T> running, std::span<const T> batch, double momentum,
                    double factor) {
  for (std::size_t c = 0; c < running.size(); ++c)
    running[c] = static_cast<T>(momentum * factor * batch[c] + (1 - momentum) * running[c]);
}

template <class T>
void inverse_std(std::span<T> v, double eps) {
  for (T& x : v) x = static_cast<T>(1 / std::sqrt(static_cast<double>(x) + eps));
}

RINGSMITH_FLOAT_AND_DOUBLE(batch_stats)
RINGSMITH_FLOAT_AND_DOUBLE(batch_norm)
RINGSMITH_FLOAT_AND_DOUBLE(batch_norm_grad)
RINGSMITH_FLOAT_AND_DOUBLE(update_running)
RINGSMITH_FLOAT_AND_DOUBLE(inverse_std)

}  // namespace ringsmith::kernels::cpu
