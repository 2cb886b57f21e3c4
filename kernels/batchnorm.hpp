// Batch normalisation over (n, c, pixels): each channel is shifted and scaled according to its
// statistics (Ioffe and Szegedy, 2015).
//
//   training    mean, var = statistics of this batch over (n, pixels), var with divisor N
//   evaluation  mean, var = the running statistics
//   y = (x - mean) * inv_std * weight + bias,   inv_std = 1 / sqrt(var + eps)
//
// Statistics are accumulated in double, so that a large mean does not swamp the variance. The
// oracle adds and rounds as PyTorch's scalar build does. The forward pass adds in ascending
// (n, pixel) order, rounds each squared deviation and their sum to T, and computes y as
// x alpha + (bias - mean alpha). The backward pass adds in eight lanes of T (four if T is double)
// within an image, then in double over the images. If images have one pixel, both add in T.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/on_device.hpp"

namespace ringsmith::kernels {

struct BatchNormShape {
  std::int64_t n = 0, c = 0, pixels = 0;  // x is (n, c, pixels), contiguous
  [[nodiscard]] constexpr std::int64_t per_channel() const { return n * pixels; }
};

// Computes each channel's mean and its sum of squared deviations. n * pixels must be at least 1.
// Spans over channels have c elements, here and below.
template <class T>
using BatchStatsFn = void(const BatchNormShape& s, std::span<const T> x, std::span<T> mean,
                          std::span<T> squares);
RINGSMITH_KERNEL(batch_stats, BatchStatsFn)

template <class T>
using BatchNormFn = void(const BatchNormShape& s, std::span<const T> x, std::span<const T> mean,
                         std::span<const T> inv_std, std::span<const T> weight,
                         std::span<const T> bias, std::span<T> y);
RINGSMITH_KERNEL(batch_norm, BatchNormFn)

// Overwrites dx, dweight and dbias. batch_statistics: mean and inv_std depend on x (training), so
// the gradient also flows through them.
template <class T>
using BatchNormGradFn = void(const BatchNormShape& s, std::span<const T> dy, std::span<const T> x,
                             std::span<const T> mean, std::span<const T> inv_std,
                             std::span<const T> weight, bool batch_statistics, std::span<T> dx,
                             std::span<T> dweight, std::span<T> dbias);
RINGSMITH_KERNEL(batch_norm_grad, BatchNormGradFn)

// running = (1 - momentum) running + momentum batch, for both the mean and the variance. The batch
// variance has divisor count - 1. As in PyTorch, the mean is updated in T, and the two terms of the
// variance are added in double. Unlike in PyTorch, a channel whose batch statistics are not finite
// keeps its running statistics, because an infinity would never leave the average.
template <class T>
using UpdateRunningFn = void(std::span<T> running_mean, std::span<T> running_var,
                             std::span<const T> mean, std::span<const T> squares, double count,
                             double momentum);
RINGSMITH_KERNEL(update_running, UpdateRunningFn)

// v = 1 / sqrt(v / count + eps), where the division by count is in T and the rest in double.
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
