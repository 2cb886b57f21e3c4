// Batch normalisation over (n, c, pixels): folds for the sums of each channel, then one pass for y
// or dx.
//
//   batch_stats      one fold for the mean, then one for the squared deviations, both in double,
//                    because a large mean would swamp the variance in float
//   batch_norm       element-wise; the channel's four numbers are in cache
//   batch_norm_grad  two folds (of dy, and of dy xhat), then element-wise
//
// A fold runs over the batch and the pixels of a channel. If images have one pixel (after a Linear
// layer), channels are adjacent and the fold runs over columns.
#include "kernels/batchnorm.hpp"
#include "kernels/cuda/fold.cuh"
#include "kernels/cuda/strided.cuh"

namespace ringsmith::kernels::cuda {

namespace {

template <class T>
struct Mean : Sums<double> {
  static constexpr bool kPacks = false;
  const T* x;
  double count, *exact;
  T* mean;
  __device__ double term(std::int64_t at, std::int64_t) const { return x[at]; }
  template <class At>
  __device__ void finish(const At& at, double sum) const {
    exact[at[0]] = sum / count;
    mean[at[0]] = static_cast<T>(sum / count);
  }
};

// Finds the channel of an element, because term() gets only the offset.
struct ChannelOf {
  std::int64_t pixels, channels;
  __device__ std::int64_t operator()(std::int64_t at) const {
    (void)take_digit(at, pixels);
    return take_digit(at, channels);
  }
};

template <class T>
struct Squares : Sums<double> {
  static constexpr bool kPacks = false;
  ChannelOf channel;
  const T* x;
  const double* mean;
  T* out;
  __device__ double term(std::int64_t at, std::int64_t) const {
    const double d = x[at] - mean[channel(at)];
    return d * d;
  }
  template <class At>
  __device__ void finish(const At& at, double squares) const {
    out[at[0]] = static_cast<T>(squares);
  }
};

// The sum of dy or, if kDot, of dy times the normalised x.
template <bool kDot, class T>
struct GradientSum : Sums<double> {
  static constexpr bool kPacks = false;
  ChannelOf channel;
  const T *dy, *x, *mean, *inv_std;
  double* exact;
  T* out;
  __device__ double term(std::int64_t at, std::int64_t) const {
    if constexpr (!kDot) return dy[at];
    const std::int64_t c = channel(at);
    return dy[at] * ((x[at] - static_cast<double>(mean[c])) * inv_std[c]);
  }
  template <class At>
  __device__ void finish(const At& at, double sum) const {
    exact[at[0]] = sum;
    out[at[0]] = static_cast<T>(sum);
  }
};

}  // namespace

template <class T>
void batch_stats(const BatchNormShape& s, std::span<const T> x, std::span<T> mean,
                 std::span<T> squares) {
  const auto count = static_cast<double>(s.per_channel());
  const Scratch<double> exact(s.c);
  fold_channels(Mean<T>{{}, x.data(), count, exact.data(), mean.data()}, s.n, s.c, s.pixels);
  fold_channels(Squares<T>{{}, {s.pixels, s.c}, x.data(), exact.data(), squares.data()}, s.n, s.c,
                s.pixels);
}

template <class T>
void batch_norm(const BatchNormShape& s, std::span<const T> x_, std::span<const T> mean_,
                std::span<const T> inv_std_, std::span<const T> weight_, std::span<const T> bias_,
                std::span<T> y_) {
  const T *const x = x_.data(), *const mean = mean_.data(), *const inv_std = inv_std_.data(),
                 *const weight = weight_.data(), *const bias = bias_.data();
  T* const y = y_.data();
  const ChannelOf channel{s.pixels, s.c};
  for_each(s.n * s.c * s.pixels, [=] __device__(std::int64_t i) {
    const std::int64_t c = channel(i);
    y[i] = (x[i] - mean[c]) * inv_std[c] * weight[c] + bias[c];
  });
}

template <class T>
void batch_norm_grad(const BatchNormShape& s, std::span<const T> dy_, std::span<const T> x_,
                     std::span<const T> mean_, std::span<const T> inv_std_,
                     std::span<const T> weight_, bool batch_statistics, std::span<T> dx_,
                     std::span<T> dweight, std::span<T> dbias) {
  const T *const dy = dy_.data(), *const x = x_.data(), *const mean = mean_.data(),
                 *const inv_std = inv_std_.data(), *const weight = weight_.data();
  T* const dx = dx_.data();
  const ChannelOf channel{s.pixels, s.c};
  const Scratch<double> scratch(2 * s.c);
  double *const sum = scratch.data(), *const dot = scratch.data() + s.c;
  fold_channels(GradientSum<false, T>{{}, channel, dy, x, mean, inv_std, sum, dbias.data()}, s.n,
                s.c, s.pixels);
  fold_channels(GradientSum<true, T>{{}, channel, dy, x, mean, inv_std, dot, dweight.data()}, s.n,
                s.c, s.pixels);
  const auto count = static_cast<double>(s.per_channel());
  for_each(s.n * s.c * s.pixels, [=] __device__(std::int64_t i) {
    const std::int64_t c = channel(i);
    const double r = inv_std[c];
    double g = dy[i];  // minus the mean of dy and its component along xhat, if batch_statistics
    if (batch_statistics)
      g -= sum[c] / count + (x[i] - static_cast<double>(mean[c])) * r * (dot[c] / count);
    dx[i] = static_cast<T>(g * r * weight[c]);
  });
}

template <class T>
void update_running(std::span<T> running_mean_, std::span<T> running_var_, std::span<const T> mean_,
                    std::span<const T> squares_, double count, double momentum) {
  T *const running_mean = running_mean_.data(), *const running_var = running_var_.data();
  const T *const mean = mean_.data(), *const squares = squares_.data();
  const T step = static_cast<T>(momentum), rest = 1 - step, divisor = static_cast<T>(count - 1);
  for_each(std::ssize(mean_), [=] __device__(std::int64_t c) {
    // Excludes infinities and NaN, for which x - x is NaN.
    if (!(mean[c] - mean[c] == 0) || !(squares[c] - squares[c] == 0)) return;
    const double var = squares[c] / divisor;
    running_mean[c] = step * mean[c] + rest * running_mean[c];
    running_var[c] = static_cast<T>(step * var + rest * running_var[c]);
  });
}

template <class T>
void inverse_std(std::span<T> v_, double count, double eps) {
  T* const v = v_.data();
  const T divisor = static_cast<T>(count);
  for_each(std::ssize(v_), [=] __device__(std::int64_t c) {
    const double var = v[c] / divisor;
    v[c] = static_cast<T>(1 / sqrt(var + eps));
  });
}

RINGSMITH_FLOAT_AND_DOUBLE(batch_stats)
RINGSMITH_FLOAT_AND_DOUBLE(batch_norm)
RINGSMITH_FLOAT_AND_DOUBLE(batch_norm_grad)
RINGSMITH_FLOAT_AND_DOUBLE(update_running)
RINGSMITH_FLOAT_AND_DOUBLE(inverse_std)

}  // namespace ringsmith::kernels::cuda
