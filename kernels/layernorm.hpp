// Layer normalisation of rows: y = (x - mean) rstd * weight + bias, rstd = 1 / sqrt(var + eps).
//
// Backward, with xhat = (x - mean) rstd, g = dy * weight, and avg = the average over the row:
//
//   dx = rstd (g - avg(g) - xhat avg(g xhat))      dweight = sum over rows of dy xhat
//                                                  dbias   = sum over rows of dy
//
// var is the biased variance (divided by the row length), computed in a second pass from the
// deviations from the mean, because E[x^2] - E[x]^2 would cancel.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/on_device.hpp"

namespace ringsmith::kernels {

// x and y are (rows, n) with rows = mean.size(). weight and bias have n elements or are empty,
// which means ones and zeros. mean and rstd are saved for the backward pass.
//
// On devices T may be f16 or bf16: the kernels compute in float and round y, and in backward dx,
// dweight and dbias, once.
template <class T>
using LayerNormFn = void(std::span<const T> x, std::span<const T> weight, std::span<const T> bias,
                         double eps, std::span<T> y, std::span<Wide<T>> mean,
                         std::span<Wide<T>> rstd);
RINGSMITH_KERNEL(layer_norm, LayerNormFn)

// Overwrites dx, dweight and dbias. Each may be empty if it is not needed.
template <class T>
using LayerNormBackwardFn = void(std::span<const T> dy, std::span<const T> x,
                                 std::span<const T> weight, std::span<const Wide<T>> mean,
                                 std::span<const Wide<T>> rstd, std::span<T> dx,
                                 std::span<T> dweight, std::span<T> dbias);
RINGSMITH_KERNEL(layer_norm_backward, LayerNormBackwardFn)

// A fused residual addition and layer_norm: sum = x + residual, y = norm of sum. On a device the
// bits are the same as from two separate kernels, but sum is not read again.
template <class T>
using AddLayerNormFn = void(std::span<const T> x, std::span<const T> residual,
                            std::span<const T> weight, std::span<const T> bias, double eps,
                            std::span<T> sum, std::span<T> y, std::span<T> mean, std::span<T> rstd);
RINGSMITH_KERNEL(add_layer_norm, AddLayerNormFn)

// dsum is the gradient of sum from its other uses. dx, the gradient of both x and residual, is the
// dx of layer_norm plus dsum. dx, dweight and dbias may be empty.
template <class T>
using AddLayerNormBackwardFn = void(std::span<const T> dy, std::span<const T> dsum,
                                    std::span<const T> sum, std::span<const T> weight,
                                    std::span<const T> mean, std::span<const T> rstd,
                                    std::span<T> dx, std::span<T> dweight, std::span<T> dbias);
RINGSMITH_KERNEL(add_layer_norm_backward, AddLayerNormBackwardFn)

// The same four under autocast, on devices only. H is f16 or bf16. y, the input of a product, and
// the residual, the result of another product, are of type H, and so are their gradients;
// everything else is float. Equal to the functions above between conversions, which would move 12
// bytes more per element of y.
template <class H>
using LayerNormLoweredFn = void(std::span<const float> x, std::span<const float> weight,
                                std::span<const float> bias, double eps, std::span<H> y,
                                std::span<float> mean, std::span<float> rstd);
RINGSMITH_KERNEL(layer_norm_lowered, LayerNormLoweredFn)
template <class H>
using LayerNormLoweredBackwardFn = void(std::span<const H> dy, std::span<const float> x,
                                        std::span<const float> weight, std::span<const float> mean,
                                        std::span<const float> rstd, std::span<float> dx,
                                        std::span<float> dweight, std::span<float> dbias);
RINGSMITH_KERNEL(layer_norm_lowered_backward, LayerNormLoweredBackwardFn)
template <class H>
using AddLayerNormLoweredFn = void(std::span<const float> x, std::span<const H> residual,
                                   std::span<const float> weight, std::span<const float> bias,
                                   double eps, std::span<float> sum, std::span<H> y,
                                   std::span<float> mean, std::span<float> rstd);
RINGSMITH_KERNEL(add_layer_norm_lowered, AddLayerNormLoweredFn)
// dresidual is dx rounded to H, and may be empty.
template <class H>
using AddLayerNormLoweredBackwardFn = void(std::span<const H> dy, std::span<const float> dsum,
                                           std::span<const float> sum,
                                           std::span<const float> weight,
                                           std::span<const float> mean, std::span<const float> rstd,
                                           std::span<float> dx, std::span<H> dresidual,
                                           std::span<float> dweight, std::span<float> dbias);
RINGSMITH_KERNEL(add_layer_norm_lowered_backward, AddLayerNormLoweredBackwardFn)

namespace cpu::fast {
LayerNormFn<float> layer_norm;
LayerNormBackwardFn<float> layer_norm_backward;
}  // namespace cpu::fast

}  // namespace ringsmith::kernels
