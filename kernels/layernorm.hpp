// Layer normalisation of rows: y = (x - mean) rstd * weight + bias, rstd = 1 / sqrt(var + eps).
//
// Backward, with xhat = (x - mean) rstd and g = dy * weight, averages over the row:
//
//   dx = rstd (g - avg(g) - xhat avg(g xhat))      dweight = sum over rows of dy xhat
//                                                  dbias   = sum over rows of dy
//
// The variance is the biased one (divided by the row length), computed in a second pass about the
// mean: E[x^2] - E[x]^2 would cancel.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/on_device.hpp"

namespace ringsmith::kernels {
namespace cpu {

// x and y are (rows, n) with rows = mean.size(); weight and bias have n elements or are empty (one
// and zero). mean and rstd are kept for the backward pass.
void layer_norm(std::span<const float> x, std::span<const float> weight,
                std::span<const float> bias, double eps, std::span<float> y, std::span<float> mean,
                std::span<float> rstd);
void layer_norm(std::span<const double> x, std::span<const double> weight,
                std::span<const double> bias, double eps, std::span<double> y,
                std::span<double> mean, std::span<double> rstd);

// Replaces dx, dweight and dbias; each may be empty if it is not wanted.
void layer_norm_backward(std::span<const float> dy, std::span<const float> x,
                         std::span<const float> weight, std::span<const float> mean,
                         std::span<const float> rstd, std::span<float> dx, std::span<float> dweight,
                         std::span<float> dbias);
void layer_norm_backward(std::span<const double> dy, std::span<const double> x,
                         std::span<const double> weight, std::span<const double> mean,
                         std::span<const double> rstd, std::span<double> dx,
                         std::span<double> dweight, std::span<double> dbias);

namespace fast {
void layer_norm(std::span<const float> x, std::span<const float> weight,
                std::span<const float> bias, double eps, std::span<float> y, std::span<float> mean,
                std::span<float> rstd);
void layer_norm_backward(std::span<const float> dy, std::span<const float> x,
                         std::span<const float> weight, std::span<const float> mean,
                         std::span<const float> rstd, std::span<float> dx, std::span<float> dweight,
                         std::span<float> dbias);
}  // namespace fast

}  // namespace cpu

// On the current device and stream (runtime/device/stream.hpp): pointers are device memory.
namespace cuda {

void layer_norm(std::span<const float> x, std::span<const float> weight,
                std::span<const float> bias, double eps, std::span<float> y, std::span<float> mean,
                std::span<float> rstd);
void layer_norm(std::span<const double> x, std::span<const double> weight,
                std::span<const double> bias, double eps, std::span<double> y,
                std::span<double> mean, std::span<double> rstd);
void layer_norm_backward(std::span<const float> dy, std::span<const float> x,
                         std::span<const float> weight, std::span<const float> mean,
                         std::span<const float> rstd, std::span<float> dx, std::span<float> dweight,
                         std::span<float> dbias);
void layer_norm_backward(std::span<const double> dy, std::span<const double> x,
                         std::span<const double> weight, std::span<const double> mean,
                         std::span<const double> rstd, std::span<double> dx,
                         std::span<double> dweight, std::span<double> dbias);

}  // namespace cuda

RINGSMITH_ON_DEVICE(layer_norm)
RINGSMITH_ON_DEVICE(layer_norm_backward)

}  // namespace ringsmith::kernels
