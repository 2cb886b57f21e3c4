// Optimizer steps: one pass over a parameter, its gradient and its state.
//
// The rules are PyTorch's (torch.optim, single-tensor path): in the oracle every operation is
// rounded by itself, in the order of the formulas below, so that trajectories have PyTorch's bits.
// The fast versions read and write each array once; what they cost is memory traffic.
//
//   SGD    d = g (+ wd p);  buf = first ? d : mu buf + (1 - damp) d
//          d = nesterov ? d + mu buf : buf;  p -= lr d
//   Adam   d = g (+ wd p);  m = b1 m + (1 - b1) d;  v = b2 v + (1 - b2) d d
//          p -= lr / (1 - b1^t)  m / (sqrt(v) / sqrt(1 - b2^t) + eps)
//   AdamW  p *= 1 - lr wd, then Adam without wd
#pragma once

#include <cstdint>
#include <span>

#include "kernels/on_device.hpp"

namespace ringsmith::kernels {

struct SgdStep {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool first = false;  // momentum only: buf starts as d, without dampening
};

struct AdamStep {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;  // AdamW
  std::int64_t t = 1;      // number of this step, from 1
};

namespace cpu {

using kernels::AdamStep, kernels::SgdStep;

// buf has the size of p when momentum is not 0; else it may be empty.
void sgd(std::span<float> p, std::span<const float> g, std::span<float> buf, const SgdStep& step);
void sgd(std::span<double> p, std::span<const double> g, std::span<double> buf,
         const SgdStep& step);

// largest is amsgrad's running maximum of v; empty without amsgrad.
void adam(std::span<float> p, std::span<const float> g, std::span<float> m, std::span<float> v,
          std::span<float> largest, const AdamStep& step);
void adam(std::span<double> p, std::span<const double> g, std::span<double> m, std::span<double> v,
          std::span<double> largest, const AdamStep& step);

// Clipping by the global norm: sum_of_squares of every gradient, clip_factor of all sums, scale
// every gradient. Results go to memory and the factor is read from there, so that a GPU does all of
// it without a wait.
//
// sum[0] = the sum of x^2, accumulated in double: NaN and inf come through.
void sum_of_squares(std::span<const float> x, std::span<double> sum);
void sum_of_squares(std::span<const double> x, std::span<double> sum);
// norm[0] = sqrt of the sum of sqrt(sums[i])^2, each root rounded to float, as PyTorch's norm of
// norms; factor[0] = min(1, max_norm / (norm + 1e-6)), NaN if the norm is.
void clip_factor(std::span<const double> sums, double max_norm, std::span<float> norm,
                 std::span<float> factor);
void scale(std::span<float> x, std::span<const float> factor);  // x *= factor[0]
void scale(std::span<double> x, std::span<const float> factor);

namespace fast {
void sgd(std::span<float> p, std::span<const float> g, std::span<float> buf, const SgdStep& step);
void adam(std::span<float> p, std::span<const float> g, std::span<float> m, std::span<float> v,
          std::span<float> largest, const AdamStep& step);
double sum_of_squares(std::span<const float> x);
void scale(std::span<float> x, float factor);
}  // namespace fast

}  // namespace cpu

// On the current device and stream (runtime/device/stream.hpp): pointers are device memory.
namespace cuda {

void sgd(std::span<float> p, std::span<const float> g, std::span<float> buf, const SgdStep& step);
void sgd(std::span<double> p, std::span<const double> g, std::span<double> buf,
         const SgdStep& step);
void adam(std::span<float> p, std::span<const float> g, std::span<float> m, std::span<float> v,
          std::span<float> largest, const AdamStep& step);
void adam(std::span<double> p, std::span<const double> g, std::span<double> m, std::span<double> v,
          std::span<double> largest, const AdamStep& step);
void sum_of_squares(std::span<const float> x, std::span<double> sum);
void sum_of_squares(std::span<const double> x, std::span<double> sum);
void clip_factor(std::span<const double> sums, double max_norm, std::span<float> norm,
                 std::span<float> factor);
void scale(std::span<float> x, std::span<const float> factor);
void scale(std::span<double> x, std::span<const float> factor);

}  // namespace cuda

RINGSMITH_ON_DEVICE(sgd)
RINGSMITH_ON_DEVICE(adam)
RINGSMITH_ON_DEVICE(sum_of_squares)
RINGSMITH_ON_DEVICE(clip_factor)
RINGSMITH_ON_DEVICE(scale)

}  // namespace ringsmith::kernels
