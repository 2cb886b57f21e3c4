// Post-local SGD: after some steps, the ranks average their parameters periodically instead of
// their gradients in every step.
//
//   backward   1 2 3 ... start |          each rank (or subgroup) on its own
//   gradients  mean of all     | its own  its own  its own  ...
//   parameters equal           | drift    drift    average  drift    drift    average
//                                         <----- period ----->
//
// Without a subgroup, the ranks exchange neither gradients nor parameters between two averages. In
// return, the result differs from data-parallel training, and the optimizers' states are never
// averaged. Lin, Stich, Patel, Jaggi, "Don't use large mini-batches, use local SGD", ICLR 2020. In
// PyTorch: post_localSGD_hook and PeriodicModelAverager.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/parallel/comm_hooks.hpp"

namespace ringsmith {

// Returns a hook that calls allreduce_hook(group) in the first `start` backward passes. In later
// passes it calls allreduce_hook(subgroup) or, without a subgroup, leaves each rank its own
// gradients. Throws UsageError if start is negative.
[[nodiscard]] CommHook post_local_sgd_hook(std::shared_ptr<comm::ProcessGroup> group,
                                           std::int64_t start,
                                           std::shared_ptr<comm::ProcessGroup> subgroup = nullptr);

class PeriodicModelAverager {
 public:
  // Averages in call number warmup_steps, counted from 0, and in every period-th call after it.
  // Throws UsageError if period is below 1 or warmup_steps is negative.
  PeriodicModelAverager(std::shared_ptr<comm::ProcessGroup> group, std::int64_t period,
                        std::int64_t warmup_steps = 0);

  // Call this after each optimizer step; collective when it averages. The parameters must be the
  // same, in the same order, on every rank. Throws UsageError unless they have one dtype and
  // device. Skipped steps (GradScaler) are not counted: pass any_rank(group) to the scaler, so that
  // all ranks skip the same steps.
  void average_parameters(const std::vector<Tensor>& parameters);

 private:
  std::shared_ptr<comm::ProcessGroup> group_;
  std::int64_t period_, warmup_steps_;
  std::int64_t step_ = 0;
};

}  // namespace ringsmith
