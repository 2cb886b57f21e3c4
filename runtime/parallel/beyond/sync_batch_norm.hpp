// SyncBatchNorm: batch normalisation with the statistics of all ranks' batches.
//
//   rank r     count n_r; mean m_r and variance v_r of each channel of its batch
//   all ranks  all_gather of n_r and, for each of C channels, m_r and n_r v_r: 1 + 2 C numbers
//              N = sum n_r      M = sum n_r m_r / N      V = sum n_r (v_r + (m_r - M)^2) / N
//   rank r     normalises its batch with M and V; running statistics from M and V N / (N - 1)
//
//   backward   sum of dy, sum of dy xhat: local for the gradients of bias and weight, which DDP
//              averages; summed over the ranks for the gradient of x
//
// Under DDP a BatchNorm2d sees only its rank's part of the batch, and its running statistics are
// rank 0's. SyncBatchNorm gives the same result as training in one process, up to rounding. The
// ranks' batches may differ in size or be empty. The layer works like PyTorch's
// torch.nn.SyncBatchNorm, but exchanges the statistics in f64.
#pragma once

#include <memory>

#include "runtime/comm/process_group.hpp"
#include "runtime/nn/module.hpp"

namespace ringsmith {

// Collective when training on several ranks: in forward, and in backward if x requires a gradient.
// Otherwise equivalent to batch_norm(). x: (n, c) or (n, c, h, w). Throws the same UsageError on
// every rank unless each channel has more than one value, summed over all ranks.
Tensor sync_batch_norm(const std::shared_ptr<comm::ProcessGroup>& group, const Tensor& x,
                       const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                       const Tensor& running_var, bool training, double momentum = 0.1,
                       double eps = 1e-5);

// Collective. Makes every BatchNorm2d of the module call sync_batch_norm. On several ranks, the
// layers share a new group of the same ranks, so that their exchanges cannot mix with DDP's.
// Returns the number of layers.
int convert_sync_batchnorm(Module& module, const std::shared_ptr<comm::ProcessGroup>& group);

}  // namespace ringsmith
