// Batch normalisation over (n, c, pixels): each channel is shifted and scaled by statistics of its
// own (Ioffe and Szegedy, 2015).
//
//   training    mean, var = statistics of this batch over (n, pixels), var with divisor N
//   evaluation  mean, var = the running statistics
//   y = (x - mean) * inv_std * weight + bias,   inv_std = 1 / sqrt(var + eps)
//
// Statistics and the sums of the backward pass are added in double, ascending (n, pixel) in the
// oracle, so that a large mean does not eat the variance.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/on_device.hpp"

namespace ringsmith::kernels {

struct BatchNormShape {
  std::int64_t n = 0, c = 0, pixels = 0;  // x is (n, c, pixels), contiguous
  [[nodiscard]] constexpr std::int64_t per_channel() const { return n * pixels; }
};

namespace cpu {

// T: float, double. Vectors over channels have c elements.
// mean and var (divisor n * pixels, which must be at least 1) of every channel.
template <class T>
void batch_stats(const BatchNormShape& s, std::span<const T> x, std::span<T> mean,
                 std::span<T> var);
template <class T>
void batch_norm(const BatchNormShape& s, std::span<const T> x, std::span<const T> mean,
                std::span<const T> inv_std, std::span<const T> weight, std::span<const T> bias,
                std::span<T> y);
// Overwrites dx, dweight, dbias. batch_statistics: mean and inv_std came from this x (training), so
// the gradient also flows through them.
template <class T>
void batch_norm_grad(const BatchNormShape& s, std::span<const T> dy, std::span<const T> x,
                     std::span<const T> mean, std::span<const T> inv_std, std::span<const T> weight,
                     bool batch_statistics, std::span<T> dx, std::span<T> dweight,
                     std::span<T> dbias);
// running = momentum factor batch + (1 - momentum) running, computed in double.
template <class T>
void update_running(std::span<T> running, std::span<const T> batch, double momentum, double factor);
// v = 1 / sqrt(v + eps), computed in double.
template <class T>
void inverse_std(std::span<T> v, double eps);

namespace fast {  // kernels/cpu/fast/batchnorm.cpp: the same contracts
template <class T>
void batch_stats(const BatchNormShape& s, std::span<const T> x, std::span<T> mean,
                 std::span<T> var);
template <class T>
void batch_norm(const BatchNormShape& s, std::span<const T> x, std::span<const T> mean,
                std::span<const T> inv_std, std::span<const T> weight, std::span<const T> bias,
                std::span<T> y);
template <class T>
void batch_norm_grad(const BatchNormShape& s, std::span<const T> dy, std::span<const T> x,
                     std::span<const T> mean, std::span<const T> inv_std, std::span<const T> weight,
                     bool batch_statistics, std::span<T> dx, std::span<T> dweight,
                     std::span<T> dbias);
}  // namespace fast

}  // namespace cpu

// On the current device and stream (runtime/device/stream.hpp): pointers are device memory.
namespace cuda {

template <class T>
void batch_stats(const BatchNormShape& s, std::span<const T> x, std::span<T> mean,
                 std::span<T> var);
template <class T>
void batch_norm(const BatchNormShape& s, std::span<const T> x, std::span<const T> mean,
                std::span<const T> inv_std, std::span<const T> weight, std::span<const T> bias,
                std::span<T> y);
template <class T>
void batch_norm_grad(const BatchNormShape& s, std::span<const T> dy, std::span<const T> x,
                     std::span<const T> mean, std::span<const T> inv_std, std::span<const T> weight,
                     bool batch_statistics, std::span<T> dx, std::span<T> dweight,
                     std::span<T> dbias);
template <class T>
void update_running(std::span<T> running, std::span<const T> batch, double momentum, double factor);
template <class T>
void inverse_std(std::span<T> v, double eps);

}  // namespace cuda

RINGSMITH_ON_DEVICE(batch_stats)
RINGSMITH_ON_DEVICE(update_running)
RINGSMITH_ON_DEVICE(inverse_std)
RINGSMITH_ON_DEVICE(batch_norm)
RINGSMITH_ON_DEVICE(batch_norm_grad)

}  // namespace ringsmith::kernels
