// Losses over a batch of n rows: negative log-likelihood, cross entropy, mean squared error.
//
//   loss_i = (1 - s) (-log p_i[target_i]) + s / classes * sum_j (-log p_i[j])   s: label smoothing
//   d loss_i / d x_ij = p_ij - (1 - s) [j = target_i] - s / classes             through log_softmax
//
// Rows whose target is ignore_index have loss 0 and gradient 0 and are not counted. The sum over a
// batch follows PyTorch's order (cpu/cascade.hpp, loss_sum) in both modes: it is short.
//
// Results are written to memory, never returned: on a GPU a returned number would be a wait.
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

namespace cpu {

using kernels::Targets;

// Throws UsageError naming the operation, the row and the value of the first target out of range.
void check_targets(const char* op, const Targets& targets);

// losses[i] from log_probs (n, classes).
void nll_rows(std::span<const float> log_probs, const Targets& targets, std::span<float> losses);
void nll_rows(std::span<const double> log_probs, const Targets& targets, std::span<double> losses);

// divisor[0] = the rows that are not ignored if `mean`, else 1; loss[0] = the sum of losses divided
// by it. Nothing counted: 0 / 0 is NaN, as in PyTorch.
void reduce_losses(std::span<const float> losses, const Targets& targets, bool mean,
                   std::span<float> loss, std::span<float> divisor);
void reduce_losses(std::span<const double> losses, const Targets& targets, bool mean,
                   std::span<double> loss, std::span<double> divisor);

// The gradient with respect to log_probs, given that of each row's loss: row_grad has n elements,
// or one that holds for all rows.
void nll_backward(const Targets& targets, std::span<const float> row_grad,
                  std::span<float> dlog_probs);
void nll_backward(const Targets& targets, std::span<const double> row_grad,
                  std::span<double> dlog_probs);

// The same through log_softmax: the gradient with respect to the logits.
void cross_entropy_backward(std::span<const float> log_probs, const Targets& targets,
                            std::span<const float> row_grad, std::span<float> dx);
void cross_entropy_backward(std::span<const double> log_probs, const Targets& targets,
                            std::span<const double> row_grad, std::span<double> dx);

// loss[0] = sum of (x - y)^2, in the order of PyTorch's sum() in the oracle, divided by divisor.
void squared_error(std::span<const float> x, std::span<const float> y, double divisor,
                   std::span<float> loss);
void squared_error(std::span<const double> x, std::span<const double> y, double divisor,
                   std::span<double> loss);
// dx = (factor (x - y)) grad, dy = -dx; grad has n elements or one; dx or dy may be empty.
void squared_error_backward(std::span<const float> x, std::span<const float> y, float factor,
                            std::span<const float> grad, std::span<float> dx, std::span<float> dy);
void squared_error_backward(std::span<const double> x, std::span<const double> y, double factor,
                            std::span<const double> grad, std::span<double> dx,
                            std::span<double> dy);

namespace fast {
void cross_entropy_backward(std::span<const float> log_probs, const Targets& targets,
                            std::span<const float> row_grad, std::span<float> dx);
float squared_error(std::span<const float> x, std::span<const float> y);  // the sum
}  // namespace fast

}  // namespace cpu

// On the current device and stream (runtime/device/stream.hpp): pointers are device memory.
namespace cuda {

// Waits for the stream: the first bad row is read back to the host.
void check_targets(const char* op, const Targets& targets);
void nll_rows(std::span<const float> log_probs, const Targets& targets, std::span<float> losses);
void nll_rows(std::span<const double> log_probs, const Targets& targets, std::span<double> losses);
// Sums of a fixed tree.
void reduce_losses(std::span<const float> losses, const Targets& targets, bool mean,
                   std::span<float> loss, std::span<float> divisor);
void reduce_losses(std::span<const double> losses, const Targets& targets, bool mean,
                   std::span<double> loss, std::span<double> divisor);
// row_grad is device memory like everything else.
void nll_backward(const Targets& targets, std::span<const float> row_grad,
                  std::span<float> dlog_probs);
void nll_backward(const Targets& targets, std::span<const double> row_grad,
                  std::span<double> dlog_probs);
void cross_entropy_backward(std::span<const float> log_probs, const Targets& targets,
                            std::span<const float> row_grad, std::span<float> dx);
void cross_entropy_backward(std::span<const double> log_probs, const Targets& targets,
                            std::span<const double> row_grad, std::span<double> dx);
void squared_error(std::span<const float> x, std::span<const float> y, double divisor,
                   std::span<float> loss);
void squared_error(std::span<const double> x, std::span<const double> y, double divisor,
                   std::span<double> loss);
void squared_error_backward(std::span<const float> x, std::span<const float> y, float factor,
                            std::span<const float> grad, std::span<float> dx, std::span<float> dy);
void squared_error_backward(std::span<const double> x, std::span<const double> y, double factor,
                            std::span<const double> grad, std::span<double> dx,
                            std::span<double> dy);

}  // namespace cuda

RINGSMITH_ON_DEVICE(check_targets)
RINGSMITH_ON_DEVICE(nll_rows)
RINGSMITH_ON_DEVICE(reduce_losses)
RINGSMITH_ON_DEVICE(nll_backward)
RINGSMITH_ON_DEVICE(cross_entropy_backward)
RINGSMITH_ON_DEVICE(squared_error)
RINGSMITH_ON_DEVICE(squared_error_backward)

}  // namespace ringsmith::kernels
