// Runs one call at a time: opens it with the agreement barrier and selects the executor.
//
// | message                                   | executor | order of the sum       |
// |-------------------------------------------|----------|------------------------|
// | small, and no algorithm named             | staged   | ((x0 + x1) + x2) + ... |
// | all buffers in communication memory       | mapped   | the schedule's         |
// | anything else                             | slots    | the schedule's         |
//
// Small: one rank's part of the message is at most 8 KiB between 2 ranks, 16 KiB between more. Two
// ranks whose buffers are all in communication memory need no staging even then: they read each
// other's buffers (and with two ranks every order of a sum gives the same bits).
//
// All ranks make the same decision: it depends on the call, which the agreement barrier has
// compared, and on the buffers that every rank announced there. Schedules are direct (all_reduce:
// two-shot) unless the call names another algorithm.
#pragma once

#include "runtime/comm/executor/executors.hpp"
#include "runtime/comm/executor/schedule_cache.hpp"

namespace ringsmith::comm {

// True if a call without a named algorithm is small enough to be summed in rank order. The limit is
// the same on every transport, so that all give the same bits.
[[nodiscard]] bool is_small(const Call& call, int world);

class Dispatcher {
 public:
  explicit Dispatcher(Peers& peers);
  void run(const Transfer& transfer);
  // The only agreement barrier of the group; other engines share it.
  [[nodiscard]] AgreementBarrier& agreement() { return agreement_; }
  [[nodiscard]] Channels& channels() { return channels_; }

 private:
  void run_collective(const Transfer& transfer);
  Peers& peers_;
  AgreementBarrier agreement_;
  Channels channels_;
  ScheduleCache schedules_;
  Buffers buffers_;  // a member to avoid an allocation per call
};

}  // namespace ringsmith::comm
