// Batch normalisation over (n, c, pixels): each channel is shifted and scaled by statistics of its
// own (Ioffe and Szegedy, 2015).
//
//   training    mean, var = statistics of this batch over (n, pixels), var with divisor N
//   evaluation  mean, var = the running statistics
//   y = (x - mean) * inv_std * weight + bias,   inv_std = 1 / sqrt(var + eps)
//
// Statistics are added in double, so that a large mean does not eat the variance; ascending (n,
// pixel) in the oracle, which rounds where PyTorch's scalar build does: each squared deviation and
// their sum to T; y as x alpha + (bias - mean alpha); the sums of backward over one image in eight
// lanes of T, then in double over the images. Where images have one pixel, the oracle's sums are of
// T throughout, as PyTorch's.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/on_device.hpp"

namespace ringsmith::kernels {

struct BatchNormShape {
  std::int64_t n = 0, c = 0, pixels = 0;  // x is (n, c, pixels), contiguous
  [[nodiscard]] constexpr std::int64_t per_channel() const { return n * pixels; }
};

// Vectors over channels have c elements.
// The mean of every channel and the sum of its squared deviations from it; n * pixels at least 1.
template <class T>
using BatchStatsFn = void(const BatchNormShape& s, std::span<const T> x, std::span<T> mean,
                          std::span<T> squares);
RINGSMITH_KERNEL(batch_stats, BatchStatsFn)

template <class T>
using BatchNormFn = void(const BatchNormShape& s, std::span<const T> x, std::span<const T> mean,
                         std::span<const T> inv_std, std::span<const T> weight,
                         std::span<const T> bias, std::span<T> y);
RINGSMITH_KERNEL(batch_norm, BatchNormFn)

// Overwrites dx, dweight, dbias. batch_statistics: mean and inv_std came from this x (training), so
// the gradient also flows through them.
template <class T>
using BatchNormGradFn = void(const BatchNormShape& s, std::span<const T> dy, std::span<const T> x,
                             std::span<const T> mean, std::span<const T> inv_std,
                             std::span<const T> weight, bool batch_statistics, std::span<T> dx,
                             std::span<T> dweight, std::span<T> dbias);
RINGSMITH_KERNEL(batch_norm_grad, BatchNormGradFn)

// running = (1 - momentum) running + momentum batch, of the mean and of the variance; that of the
// batch here with divisor count - 1. In T, but for the variance's sum, as PyTorch. Unlike there, a
// channel whose batch is not finite leaves its own as they are: the step will be skipped, or the
// loss says NaN; taken in, an infinity would stay for good.
template <class T>
using UpdateRunningFn = void(std::span<T> running_mean, std::span<T> running_var,
                             std::span<const T> mean, std::span<const T> squares, double count,
                             double momentum);
RINGSMITH_KERNEL(update_running, UpdateRunningFn)

// v = 1 / sqrt(v / count + eps): the division in T, the rest in double.
template <class T>
using InverseStdFn = void(std::span<T> v, double count, double eps);
RINGSMITH_KERNEL(inverse_std, InverseStdFn)

namespace cpu::fast {
template <class T>
BatchStatsFn<T> batch_stats;
template <class T>
BatchNormFn<T> batch_norm;
template <class T>
BatchNormGradFn<T> batch_norm_grad;
}  // namespace cpu::fast

}  // namespace ringsmith::kernels
