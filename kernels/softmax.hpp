// softmax and log_softmax along one dimension, and their backward passes.
//
//   softmax      y_j = exp(x_j - m) / S           m = max x,  S = sum exp(x_j - m)
//                dx_j = (dy_j - sum dy y) y_j
//   log_softmax  y_j = x_j - m - log S
//                dx_j = dy_j - exp(y_j) sum dy
//
// Subtracting the maximum keeps exp() in range. A slice of only -inf yields NaN, as in PyTorch, and
// so does a slice that contains a NaN. The oracle sums in PyTorch's order (cpu/cascade.hpp,
// lane_sum).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/on_device.hpp"

namespace ringsmith::kernels {

// A contiguous tensor seen as (outer, n, inner). The softmax runs over n. inner is 1 for the last
// dimension.
struct Slices {
  std::int64_t outer = 1, n = 0, inner = 1;
};

namespace cpu {
using kernels::Slices;
}

// y may be x (in place). All spans have outer * n * inner elements.
template <class T>
using SoftmaxFn = void(std::span<const T> x, std::span<T> y, Slices slices);
RINGSMITH_KERNEL(softmax, SoftmaxFn)
RINGSMITH_KERNEL(log_softmax, SoftmaxFn)

// y is the result of the forward pass. dx may be dy.
template <class T>
using SoftmaxBackwardFn = void(std::span<const T> dy, std::span<const T> y, std::span<T> dx,
                               Slices slices);
RINGSMITH_KERNEL(softmax_backward, SoftmaxBackwardFn)
RINGSMITH_KERNEL(log_softmax_backward, SoftmaxBackwardFn)

namespace cpu::fast {
SoftmaxFn<float> softmax, log_softmax;
SoftmaxBackwardFn<float> softmax_backward, log_softmax_backward;
}  // namespace cpu::fast

}  // namespace ringsmith::kernels
