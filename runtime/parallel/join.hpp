// Join: ranks with unequally many inputs.
//
//   rank 0   f b   f b   f b   f b  |         f b  a forward and its backward
//   rank 1   f b   f b   . .   . .  |         . .  shadows of the others': who is there, buffers,
//   rank 2   f b   f b   f b   . .  |              zeros for each bucket
//                                   rank 0, the last joiner, broadcasts its model
//
// Every forward begins with an exchange: who still has inputs, and whether the backward will
// reduce. A rank that has run out goes on taking part in the others' collectives, until all have
// run out; then the last of them broadcasts its parameters and buffers. What else the ranks
// exchange in their loops is not shadowed: SyncBatchNorm, metrics (use throw_on_early_termination
// there).
//
// PyTorch's DistributedDataParallel.join() (torch.distributed.algorithms.Join). What differs: one
// exchange a forward, not three; the gradients of a rank that has run out are dropped; a forward
// under NoGradGuard exchanges nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/comm/process_group.hpp"

namespace ringsmith {

struct JoinOptions {
  // True: gradients are divided by the number of all ranks, so that each input counts the same, and
  // steps get smaller when ranks run out. False: by the number of ranks that still have inputs.
  bool divide_by_initial_world_size = true;
  // When the first rank has run out, all ranks throw InputsExhausted, with the same message.
  bool throw_on_early_termination = false;
};

class InputsExhausted : public Error {
 public:
  using Error::Error;
};

// Who still has inputs.
class Join {
 public:
  Join(std::shared_ptr<comm::ProcessGroup> group, const JoinOptions& options);

  // Collective, at the start of a forward: this rank has an input. UsageError on every rank if some
  // of the backwards will reduce and others not.
  void announce(bool reduces);
  // Collective: this rank has none. False if no rank has.
  [[nodiscard]] bool shadow();

  // Of the last exchange.
  [[nodiscard]] int active() const;   // ranks with inputs
  [[nodiscard]] int divisor() const;  // of the gradients
  [[nodiscard]] bool reduces() const { return reduces_; }
  // The highest rank of those that had inputs last: whose buffers count, and in the end the model.
  [[nodiscard]] int authority() const { return authority_; }

 private:
  enum State : std::int64_t { has_run_out, stays_local, will_reduce };
  void exchange(State mine);

  std::shared_ptr<comm::ProcessGroup> group_;
  JoinOptions options_;
  std::vector<std::int64_t> states_;  // by rank
  bool reduces_ = false;
  int authority_;
  std::int64_t forwards_ = 0;
};

}  // namespace ringsmith
