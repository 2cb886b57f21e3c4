// Losses over a batch of n rows: negative log-likelihood, cross entropy, mean squared error.
//
//   loss_i = (1 - s) (-log p_i[target_i]) + s / classes * sum_j (-log p_i[j])   s: label smoothing
//   d loss_i / d x_ij = p_ij - (1 - s) [j = target_i] - s / classes             through log_softmax
//
// Rows whose target is ignore_index have loss 0 and gradient 0 and are not counted. The sum over a
// batch is short, so both modes add in PyTorch's order (cpu/cascade.hpp, loss_sum).
//
// Results are written to memory, because returning a number from a GPU would mean waiting for it.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/on_device.hpp"

namespace ringsmith::kernels {

struct Targets {
  std::span<const std::int64_t> index;  // n, each in [0, classes) or ignore_index
  std::int64_t classes = 0;
  std::int64_t ignore_index = -100;
  double smoothing = 0;
};

inline void look(Operands& o, const Targets& targets) { look(o, targets.index); }

namespace cpu {
using kernels::Targets;
}

// Throws a UsageError that names the operation, the row and the value of the first target out of
// range. On a device the error is thrown later, at the host's next check
// (runtime/device/findings.hpp), and the losses of such rows are NaN.
using CheckTargetsFn = void(const char* op, const Targets& targets);
namespace cpu {
CheckTargetsFn check_targets;
}
namespace cuda {
CheckTargetsFn check_targets;
}
RINGSMITH_ON_DEVICE(check_targets)

// Computes losses[i] from log_probs (n, classes).
template <class T>
using NllRowsFn = void(std::span<const T> log_probs, const Targets& targets, std::span<T> losses);
RINGSMITH_KERNEL(nll_rows, NllRowsFn)

// loss[0] = sum of losses / divisor[0], where divisor[0] is 1, or, if `mean`, the number of rows
// that are not ignored. If all rows are ignored, the mean is 0 / 0 = NaN, as in PyTorch. On a
// device the sum is a tree of fixed shape.
template <class T>
using ReduceLossesFn = void(std::span<const T> losses, const Targets& targets, bool mean,
                            std::span<T> loss, std::span<T> divisor);
RINGSMITH_KERNEL(reduce_losses, ReduceLossesFn)

// The gradient with respect to log_probs, given the gradients of the row losses. row_grad has n
// elements, or one element that applies to all rows.
template <class T>
using NllBackwardFn = void(const Targets& targets, std::span<const T> row_grad,
                           std::span<T> dlog_probs);
RINGSMITH_KERNEL(nll_backward, NllBackwardFn)

// The gradient with respect to the logits, i.e. nll_backward followed by log_softmax_backward.
template <class T>
using CrossEntropyBackwardFn = void(std::span<const T> log_probs, const Targets& targets,
                                    std::span<const T> row_grad, std::span<T> dx);
RINGSMITH_KERNEL(cross_entropy_backward, CrossEntropyBackwardFn)

// Cross entropy without log_probs in memory: computes the losses from the logits x (n, width) and
// saves two numbers per row for the backward pass. Without smoothing the bits of float and double
// are the same as from log_softmax and the functions above.
//
// On devices, T may be f16 or bf16, with losses, statistics and gradients of rows in float; and
// width = x.size() / n may exceed t.classes. The other columns are padding (GPT-2's 50,257 classes
// in rows of 50,304, which are aligned): they are not read, and their gradient is 0.
template <class T>
struct LogSum {
  T largest;  // of the row
  T log_sum;  // the logarithm of the sum of exp(x - largest)
  [[nodiscard]] constexpr T log_prob(T x) const { return x - largest - log_sum; }
};
template <class T>
using CrossEntropyRowsFn = void(std::span<const T> x, const Targets& targets,
                                std::span<Wide<T>> losses, std::span<LogSum<Wide<T>>> statistics);
RINGSMITH_KERNEL(cross_entropy_rows, CrossEntropyRowsFn)

// dx, of x's shape, may be x (in place): with 16-bit logits, forward and backward then move 6 bytes
// per logit and need no memory of that size.
template <class T>
using CrossEntropyRowsBackwardFn = void(std::span<const T> x,
                                        std::span<const LogSum<Wide<T>>> statistics,
                                        const Targets& targets, std::span<const Wide<T>> row_grad,
                                        std::span<T> dx);
RINGSMITH_KERNEL(cross_entropy_rows_backward, CrossEntropyRowsBackwardFn)

// loss[0] = sum of (x - y)^2 / divisor. The oracle adds in the order of PyTorch's sum().
template <class T>
using SquaredErrorFn = void(std::span<const T> x, std::span<const T> y, double divisor,
                            std::span<T> loss);
RINGSMITH_KERNEL(squared_error, SquaredErrorFn)

// dx = (factor (x - y)) grad, dy = -dx. grad has n elements or one. dx or dy may be empty.
template <class T>
using SquaredErrorBackwardFn = void(std::span<const T> x, std::span<const T> y, T factor,
                                    std::span<const T> grad, std::span<T> dx, std::span<T> dy);
RINGSMITH_KERNEL(squared_error_backward, SquaredErrorBackwardFn)

namespace cpu::fast {
CrossEntropyBackwardFn<float> cross_entropy_backward;
SquaredErrorFn<float> squared_error;
}  // namespace cpu::fast

}  // namespace ringsmith::kernels
