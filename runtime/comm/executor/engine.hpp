// Runs one call at a time: opens it with the agreement barrier and picks the executor.
//
// | message                                   | executor | order of the sum       |
// |-------------------------------------------|----------|------------------------|
// | small, and no algorithm asked for         | staging  | ((x0 + x1) + x2) + ... |
// | all buffers in communication memory       | mapped   | the schedule's         |
// | anything else                             | slots    | the schedule's         |
//
// Small: one rank's part of the message is at most 8 KiB between 2 ranks, 16 KiB between more. Two
// ranks whose buffers are all in communication memory need no staging even then: they read each
// other (and with two ranks every order of a sum gives the same bits).
//
// All ranks decide alike: from the call, which the agreement barrier has compared, and from what
// every rank said there about its buffers. Schedules are direct ones (all_reduce: two-shot) unless
// the group was told otherwise.
#pragma once

#include "runtime/comm/executor/executors.hpp"
#include "runtime/comm/executor/library.hpp"

namespace ringsmith::comm {

// Is an automatic call small enough to be added up in rank order? The same limit on every
// transport, so that they give the same bits.
[[nodiscard]] bool is_small(const Call& call, int world);

class Engine {
 public:
  explicit Engine(Peers& peers);
  void run(const Transfer& transfer);
  // The one agreement barrier of the group, for other engines beside this one.
  [[nodiscard]] AgreementBarrier& agreement() { return agreement_; }
  [[nodiscard]] Channels& channels() { return channels_; }

 private:
  void run_collective(const Transfer& transfer);
  Peers& peers_;
  AgreementBarrier agreement_;
  Channels channels_;
  Library library_;
  Buffers buffers_;  // kept to spare an allocation per call
};

}  // namespace ringsmith::comm
