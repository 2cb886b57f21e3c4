// Runs one call at a time: opens it with the roll call and picks the executor.
//
// | message                                   | executor | order of the sum       |
// |-------------------------------------------|----------|------------------------|
// | small, and no algorithm asked for         | window   | ((x0 + x1) + x2) + ... |
// | all buffers in communication memory       | mapped   | the schedule's         |
// | anything else                             | slots    | the schedule's         |
//
// Small: one rank's part of the message is at most 8 KiB between 2 ranks, 16 KiB between more. Two
// ranks whose buffers are all in communication memory need no window even then: they read each
// other (and with two ranks every order of a sum gives the same bits).
//
// All ranks decide alike: from the call, which the roll call has compared, and from what every rank
// said there about its buffers. Schedules are direct ones (all_reduce: two-shot) unless the group
// was told otherwise.
#pragma once

#include "runtime/comm/executor/library.hpp"
#include "runtime/comm/executor/p2p.hpp"
#include "runtime/comm/executor/slots.hpp"
#include "runtime/comm/executor/window.hpp"

namespace ringsmith::comm {

class Engine {
 public:
  explicit Engine(Host& host);
  void run(const Transfer& transfer);

 private:
  void run_collective(const Transfer& transfer);
  // Looks at what all ranks said about their buffers in the roll call, and fills buffers_.
  struct Sharing {
    bool all = true, none = true, in_place = false;
  };
  [[nodiscard]] Sharing look_at_buffers(const Transfer& transfer);

  Host& host_;
  RollCall roll_call_;
  Channels channels_;
  Library library_;
  Buffers buffers_;  // kept to spare an allocation per call
};

}  // namespace ringsmith::comm
