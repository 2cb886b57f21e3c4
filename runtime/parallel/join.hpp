// Join: ranks with different numbers of inputs.
//
//   rank 0   f b   f b   f b   f b  |         f b  a forward and its backward
//   rank 1   f b   f b   . .   . .  |         . .  shadows of the peers' steps: the exchange of
//   rank 2   f b   f b   f b   . .  |              states, buffers, zeros for each bucket
//                                   rank 0, the last to run out, broadcasts its model
//
// Every forward with grad mode on begins with an exchange: each rank announces whether it still has
// inputs and whether its backward will reduce. A rank without inputs joins its peers' collectives
// until all have run out. At the end, the highest of the ranks that ran out last broadcasts its
// parameters and buffers. Other collectives in the loop, such as SyncBatchNorm or metrics, are not
// shadowed; use throw_on_early_termination with them.
//
// It works like PyTorch's DistributedDataParallel.join(), with three differences: one exchange per
// forward, not three; a rank that has run out drops its gradients; a forward under NoGradGuard
// exchanges nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/comm/process_group.hpp"

namespace ringsmith {

struct JoinOptions {
  // True: gradients are divided by the total number of ranks, so each input has the same weight,
  // and steps get smaller as ranks run out. False: by the number of ranks that still have inputs.
  bool divide_by_initial_world_size = true;
  // If some ranks have run out and others have not, all ranks throw InputsExhausted with the same
  // message.
  bool throw_on_early_termination = false;
};

class InputsExhausted : public Error {
 public:
  using Error::Error;
};

// Tracks which ranks still have inputs.
class Join {
 public:
  Join(std::shared_ptr<comm::ProcessGroup> group, const JoinOptions& options);

  // Collective. Announces at the start of a forward that this rank has an input. Like shadow(),
  // throws UsageError on every rank if only some of the backward passes will reduce, and
  // InputsExhausted if the options ask for it.
  void announce(bool reduces);
  // Collective. Announces that this rank has no input. Returns false if no rank has an input.
  [[nodiscard]] bool shadow();

  // Results of the last exchange.
  [[nodiscard]] int active() const;   // ranks with inputs
  [[nodiscard]] int divisor() const;  // for the gradients
  [[nodiscard]] bool reduces() const { return reduces_; }
  // The highest rank that had inputs in the last exchange in which any rank had some; before the
  // first such exchange, the last rank. Its buffers and, at the end, its model replace the others'.
  [[nodiscard]] int authority() const { return authority_; }

 private:
  enum RankState : std::int64_t { has_run_out, stays_local, will_reduce };
  void exchange(RankState mine);

  std::shared_ptr<comm::ProcessGroup> group_;
  JoinOptions options_;
  std::vector<std::int64_t> states_;  // by rank
  bool reduces_ = false;
  int authority_;
  std::int64_t forwards_ = 0;
};

}  // namespace ringsmith
