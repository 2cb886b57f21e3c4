// Post-local SGD: after a while the ranks average their parameters from time to time, instead of
// their gradients in every step.
//
//   backward   1 2 3 ... start |          each rank (or subgroup) by itself
//   gradients  mean of all     | its own  its own  its own  ...
//   parameters equal           | drift    drift    average  drift    drift    average
//                                         <----- period ----->
//
// Between two averages nothing of the model travels; in exchange the result is another one than
// that of data-parallel training, and the optimizers' states stay apart. Lin, Stich, Patel, Jaggi,
// "Don't use large mini-batches, use local SGD", ICLR 2020. PyTorch's post_localSGD_hook and
// PeriodicModelAverager.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/parallel/comm_hooks.hpp"

namespace ringsmith {

// allreduce_hook(group) for the first `start` backward passes, then allreduce_hook(subgroup);
// without a subgroup each rank keeps its own gradients. UsageError if start is negative.
[[nodiscard]] CommHook post_local_sgd_hook(std::shared_ptr<comm::ProcessGroup> group,
                                           std::int64_t start,
                                           std::shared_ptr<comm::ProcessGroup> subgroup = nullptr);

class PeriodicModelAverager {
 public:
  // Averages in call warmup_steps, counted from 0, and in every period-th one after it. UsageError
  // if period is not at least 1, or warmup_steps negative.
  PeriodicModelAverager(std::shared_ptr<comm::ProcessGroup> group, std::int64_t period,
                        std::int64_t warmup_steps = 0);

  // After each optimizer step; collective when it averages. The same parameters, in the same order,
  // on every rank; all of one dtype and device (UsageError). A step that GradScaler has skipped is
  // not counted: give the scaler any_rank(group), so that all ranks skip the same ones.
  void average_parameters(const std::vector<Tensor>& parameters);

 private:
  std::shared_ptr<comm::ProcessGroup> group_;
  std::int64_t period_, warmup_steps_;
  std::int64_t step_ = 0;
};

}  // namespace ringsmith
