// SyncBatchNorm: batch normalisation by the statistics of all ranks' batches together.
//
//   rank r     count n_r, mean m_r, variance v_r of each channel of its batch
//   all ranks  all_gather of these, 2 channels + 1 numbers a rank
//              N = sum n_r      M = sum n_r m_r / N      V = sum n_r (v_r + (m_r - M)^2) / N
//   rank r     normalises its batch with M and V; running statistics from M and V N / (N - 1)
//
//   backward   sum of dy, sum of dy xhat: local for the gradients of bias and weight, which DDP
//              averages; summed over the ranks for the gradient of x
//
// Under DDP a BatchNorm2d sees its rank's part of the batch only, and its running statistics are
// rank 0's. With few samples a rank that is another training than one process would do; this is the
// same, to rounding. Batches may be of unequal size, or empty, on the ranks. PyTorch's
// torch.nn.SyncBatchNorm; the exchange is in f64 here.
#pragma once

#include <memory>

#include "runtime/comm/process_group.hpp"
#include "runtime/nn/module.hpp"

namespace ringsmith {

// Collective in forward, and in backward if x needs a gradient, when training on several ranks;
// else batch_norm. x (n, c) or (n, c, h, w). UsageError, the same on every rank, if there is no
// more than one value per channel on all ranks together.
Tensor sync_batch_norm(const std::shared_ptr<comm::ProcessGroup>& group, const Tensor& x,
                       const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                       const Tensor& running_var, bool training, double momentum = 0.1,
                       double eps = 1e-5);

// Collective: gives every BatchNorm2d of the module that function, over a group of its own of the
// same ranks, so that its exchanges cannot be confused with DDP's, whose order depends on which
// gradients a rank has. Parameters and buffers stay what they are. Returns the number of layers.
int convert_sync_batchnorm(Module& module, const std::shared_ptr<comm::ProcessGroup>& group);

}  // namespace ringsmith
