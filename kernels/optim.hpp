// Optimizer steps: one pass over a parameter, its gradient and its state.
//
// The rules are PyTorch's (torch.optim, single-tensor path). In the oracle every operation is
// rounded separately, in the order of the formulas below, so that trajectories have PyTorch's bits.
// The fast versions read and write each array once.
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
}

// buf has the size of p if momentum is not 0. Otherwise it may be empty.
template <class T>
using SgdFn = void(std::span<T> p, std::span<const T> g, std::span<T> buf, const SgdStep& step);
RINGSMITH_KERNEL(sgd, SgdFn)

// largest is amsgrad's running maximum of v. It is empty without amsgrad.
template <class T>
using AdamFn = void(std::span<T> p, std::span<const T> g, std::span<T> m, std::span<T> v,
                    std::span<T> largest, const AdamStep& step);
RINGSMITH_KERNEL(adam, AdamFn)

// One step for many parameters, which must not share memory. Either all or none have a `largest`.
// The result has the same bits as one call per parameter, but a device needs only a few launches.
template <class T>
struct AdamTensor {
  std::span<T> p;
  std::span<const T> g;
  std::span<T> m, v, largest;
};
template <class T>
using AdamAllFn = void(std::span<const AdamTensor<T>> tensors, const AdamStep& step);
RINGSMITH_KERNEL(adam_all, AdamAllFn)

template <class T>
void look(Operands& o, const std::span<const AdamTensor<T>>& tensors) {
  std::int64_t n = 0, largest = 0;
  for (const AdamTensor<T>& t : tensors) {
    n += std::ssize(t.p);
    largest += std::ssize(t.largest);
  }
  o.add<const T>(n);
  for (const std::int64_t written : {n, n, n, largest}) o.add<T>(written);
}

// The number of a parameter's last step and the factors that depend on it, in the device's memory.
// A captured graph reads them there, because arguments of its kernels are the same in every launch.
struct AdamClock {
  double t = 0;
  double step_size = 0;   // lr / (1 - beta1^t)
  double correction = 1;  // sqrt(1 - beta2^t)
  double shrink = 1;      // 1 - lr weight_decay
};

// adam_all with step.t and step.lr from the device: advances clocks[which[i]], computes its factors
// with the learning rate lr[0], and updates tensor i with them. which[] is the host's.
template <class T>
using AdamClockedFn = void(std::span<const AdamTensor<T>> tensors,
                           std::span<const std::int32_t> which, std::span<AdamClock> clocks,
                           std::span<const double> lr, const AdamStep& step);
RINGSMITH_KERNEL(adam_clocked, AdamClockedFn)

// To clip by the global norm, call sum_of_squares for every gradient, clip_factor once, and scale
// for every gradient. The sums and the factor remain in device memory, so the host never waits for
// the GPU.
//
// sum[0] = the sum of x^2, accumulated in double. NaN and inf propagate.
template <class T>
using SumOfSquaresFn = void(std::span<const T> x, std::span<double> sum);
RINGSMITH_KERNEL(sum_of_squares, SumOfSquaresFn)

// norm[0] is the square root of the sum of sqrt(sums[i])^2, with each root rounded to float, like
// PyTorch's norm of norms. factor[0] = min(1, max_norm / (norm + 1e-6)), or NaN if the norm is NaN.
using ClipFactorFn = void(std::span<const double> sums, double max_norm, std::span<float> norm,
                          std::span<float> factor);
namespace cpu {
ClipFactorFn clip_factor;
}
namespace cuda {
ClipFactorFn clip_factor;
}
RINGSMITH_ON_DEVICE(clip_factor)

template <class T>
using ScaleFn = void(std::span<T> x, std::span<const float> factor);
RINGSMITH_KERNEL(scale, ScaleFn)

// Used by GradScaler: g *= factor, and found[0] becomes 1 if a product is infinite or NaN.
// Otherwise found[0] is unchanged. factor must be finite and above 0.
template <class T>
using UnscaleFn = void(std::span<T> g, float factor, std::span<std::int32_t> found);
RINGSMITH_KERNEL(unscale, UnscaleFn)

namespace cpu::fast {
SgdFn<float> sgd;
AdamFn<float> adam;
SumOfSquaresFn<float> sum_of_squares;
ScaleFn<float> scale;
}  // namespace cpu::fast

}  // namespace ringsmith::kernels
