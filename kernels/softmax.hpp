// softmax and log_softmax along one dimension, and their backward passes.
//
//   softmax      y_j = exp(x_j - m) / S           m = max x,  S = sum exp(x_j - m)
//                dx_j = (dy_j - sum dy y) y_j
//   log_softmax  y_j = x_j - m - log S
//                dx_j = dy_j - exp(y_j) sum dy
//
// Taking the maximum out first keeps exp() in range whatever x is. A slice of nothing but -inf is
// NaN, as in PyTorch; so is any slice that holds a NaN. The oracle sums in PyTorch's order
// (cpu/cascade.hpp, lane_sum).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/on_device.hpp"

namespace ringsmith::kernels {

// A contiguous tensor seen as (outer, n, inner), the softmax running over n; inner is 1 for the
// last dimension.
struct Slices {
  std::int64_t outer = 1, n = 0, inner = 1;
};

namespace cpu {

using kernels::Slices;

// y may be x. All spans have outer * n * inner elements.
void softmax(std::span<const float> x, std::span<float> y, Slices slices);
void softmax(std::span<const double> x, std::span<double> y, Slices slices);
void log_softmax(std::span<const float> x, std::span<float> y, Slices slices);
void log_softmax(std::span<const double> x, std::span<double> y, Slices slices);

// y is the result of the forward pass. dx may be dy.
void softmax_backward(std::span<const float> dy, std::span<const float> y, std::span<float> dx,
                      Slices slices);
void softmax_backward(std::span<const double> dy, std::span<const double> y, std::span<double> dx,
                      Slices slices);
void log_softmax_backward(std::span<const float> dy, std::span<const float> y, std::span<float> dx,
                          Slices slices);
void log_softmax_backward(std::span<const double> dy, std::span<const double> y,
                          std::span<double> dx, Slices slices);

namespace fast {
void softmax(std::span<const float> x, std::span<float> y, Slices slices);
void log_softmax(std::span<const float> x, std::span<float> y, Slices slices);
void softmax_backward(std::span<const float> dy, std::span<const float> y, std::span<float> dx,
                      Slices slices);
void log_softmax_backward(std::span<const float> dy, std::span<const float> y, std::span<float> dx,
                          Slices slices);
}  // namespace fast

}  // namespace cpu

// On the current device and stream (runtime/device/stream.hpp): pointers are device memory.
namespace cuda {

void softmax(std::span<const float> x, std::span<float> y, Slices slices);
void softmax(std::span<const double> x, std::span<double> y, Slices slices);
void log_softmax(std::span<const float> x, std::span<float> y, Slices slices);
void log_softmax(std::span<const double> x, std::span<double> y, Slices slices);
void softmax_backward(std::span<const float> dy, std::span<const float> y, std::span<float> dx,
                      Slices slices);
void softmax_backward(std::span<const double> dy, std::span<const double> y, std::span<double> dx,
                      Slices slices);
void log_softmax_backward(std::span<const float> dy, std::span<const float> y, std::span<float> dx,
                          Slices slices);
void log_softmax_backward(std::span<const double> dy, std::span<const double> y,
                          std::span<double> dx, Slices slices);

}  // namespace cuda

RINGSMITH_ON_DEVICE(softmax)
RINGSMITH_ON_DEVICE(log_softmax)
RINGSMITH_ON_DEVICE(softmax_backward)
RINGSMITH_ON_DEVICE(log_softmax_backward)

}  // namespace ringsmith::kernels
