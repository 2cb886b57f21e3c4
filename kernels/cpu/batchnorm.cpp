// The oracles of batch normalisation. In Mode::fast, those with a fast version call it.
#include "kernels/batchnorm.hpp"

#include <cmath>

#include "kernels/cpu/cascade.hpp"
#include "kernels/mode.hpp"

namespace ringsmith::kernels::cpu {

namespace {

template <class F>
void for_each_of_channel(const BatchNormShape& s, std::int64_t c, const F& f) {  // f(flat position)
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t p = 0; p < s.pixels; ++p)
      f(static_cast<std::size_t>((n * s.c + c) * s.pixels + p));
}

// Calls f with a value of the type of the sums: double, or T if images have one pixel, because
// PyTorch treats such images as rows of channels and adds row by row.
template <class T, class F>
void with_sum_type(const BatchNormShape& s, const F& f) {
  s.pixels == 1 ? f(T{}) : f(double{});
}

template <class Sum, class T>
void oracle_stats(const BatchNormShape& s, std::span<const T> x, std::span<T> mean,
                  std::span<T> squares) {
  for (std::int64_t c = 0; c < s.c; ++c) {
    Sum sum = 0, sum_of_squares = 0;
    for_each_of_channel(s, c, [&](std::size_t i) { sum += x[i]; });
    const T m = static_cast<T>(static_cast<double>(sum) / static_cast<double>(s.per_channel()));
    for_each_of_channel(s, c, [&](std::size_t i) {
      const T square = (x[i] - m) * (x[i] - m);
      sum_of_squares += square;
    });
    mean[static_cast<std::size_t>(c)] = m;
    squares[static_cast<std::size_t>(c)] = static_cast<T>(sum_of_squares);
  }
}

template <class Sum, class T>
void oracle_grad(const BatchNormShape& s, std::span<const T> dy, std::span<const T> x,
                 std::span<const T> mean, std::span<const T> inv_std, std::span<const T> weight,
                 bool batch_statistics, std::span<T> dx, std::span<T> dweight, std::span<T> dbias) {
  for (std::size_t c = 0; c < static_cast<std::size_t>(s.c); ++c) {
    const auto channel = static_cast<std::int64_t>(c);
    const T m = mean[c], r = inv_std[c];
    Sum sum = 0, dot = 0;  // of dy, and of dy (x - m)
    for (std::int64_t n = 0; n < s.n; ++n) {
      const auto image = static_cast<std::size_t>((n * s.c + channel) * s.pixels);
      const auto at = [image](std::int64_t p) { return image + static_cast<std::size_t>(p); };
      sum += lane_sum<T>(s.pixels, [&](std::int64_t p) { return dy[at(p)]; });
      dot += lane_sum<T>(s.pixels, [&](std::int64_t p) { return (x[at(p)] - m) * dy[at(p)]; });
    }
    const T along = static_cast<T>(dot) * r * r / static_cast<T>(s.per_channel());
    const T average =
        static_cast<T>(static_cast<double>(sum) / static_cast<double>(s.per_channel()));
    for_each_of_channel(s, channel, [&](std::size_t i) {
      // With batch_statistics, removes the mean of dy and its component along x.
      const T g = batch_statistics ? dy[i] - average - (x[i] - m) * along : dy[i];
      dx[i] = g * r * weight[c];
    });
    dweight[c] = static_cast<T>(dot * r);
    dbias[c] = static_cast<T>(sum);
  }
}

}  // namespace

template <class T>
void batch_stats(const BatchNormShape& s, std::span<const T> x, std::span<T> mean,
                 std::span<T> squares) {
  if (mode() == Mode::fast) return fast::batch_stats(s, x, mean, squares);
  with_sum_type<T>(s, [&]<class Sum>(Sum) { oracle_stats<Sum>(s, x, mean, squares); });
}

template <class T>
void batch_norm(const BatchNormShape& s, std::span<const T> x, std::span<const T> mean,
                std::span<const T> inv_std, std::span<const T> weight, std::span<const T> bias,
                std::span<T> y) {
  if (mode() == Mode::fast) return fast::batch_norm(s, x, mean, inv_std, weight, bias, y);
  for (std::size_t c = 0; c < static_cast<std::size_t>(s.c); ++c) {
    const T alpha = inv_std[c] * weight[c], beta = bias[c] - mean[c] * alpha;
    for_each_of_channel(s, static_cast<std::int64_t>(c),
                        [&](std::size_t i) { y[i] = x[i] * alpha + beta; });
  }
}

template <class T>
void batch_norm_grad(const BatchNormShape& s, std::span<const T> dy, std::span<const T> x,
                     std::span<const T> mean, std::span<const T> inv_std, std::span<const T> weight,
                     bool batch_statistics, std::span<T> dx, std::span<T> dweight,
                     std::span<T> dbias) {
  if (mode() == Mode::fast)
    return fast::batch_norm_grad(s, dy, x, mean, inv_std, weight, batch_statistics, dx, dweight,
                                 dbias);
  with_sum_type<T>(s, [&]<class Sum>(Sum) {
    oracle_grad<Sum>(s, dy, x, mean, inv_std, weight, batch_statistics, dx, dweight, dbias);
  });
}

template <class T>
void update_running(std::span<T> running_mean, std::span<T> running_var, std::span<const T> mean,
                    std::span<const T> squares, double count, double momentum) {
  const T step = static_cast<T>(momentum), rest = 1 - step;
  for (std::size_t c = 0; c < mean.size(); ++c) {
    if (!std::isfinite(mean[c]) || !std::isfinite(squares[c])) continue;
    const double var = squares[c] / static_cast<T>(count - 1);
    running_mean[c] = step * mean[c] + rest * running_mean[c];
    running_var[c] = static_cast<T>(step * var + rest * running_var[c]);
  }
}

template <class T>
void inverse_std(std::span<T> v, double count, double eps) {
  for (T& x : v) {
    const double var = x / static_cast<T>(count);
    x = static_cast<T>(1 / std::sqrt(var + eps));
  }
}

RINGSMITH_FLOAT_AND_DOUBLE(batch_stats)
RINGSMITH_FLOAT_AND_DOUBLE(batch_norm)
RINGSMITH_FLOAT_AND_DOUBLE(batch_norm_grad)
RINGSMITH_FLOAT_AND_DOUBLE(update_running)
RINGSMITH_FLOAT_AND_DOUBLE(inverse_std)

}  // namespace ringsmith::kernels::cpu
