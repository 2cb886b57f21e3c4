// Runs one call at a time: opens a collective with the agreement barrier and selects the executor.
//
// | message                                   | executor | order of the sum       |
// |-------------------------------------------|----------|------------------------|
// | small, and no algorithm named             | staged   | ((x0 + x1) + x2) + ... |
// | all buffers in communication memory       | mapped   | the schedule's         |
// | anything else                             | slots    | the schedule's         |
//
// Small: the buffer whose length is the same on all ranks has at most 8 KiB between 2 ranks, 16 KiB
// between more. Two ranks use staging only if neither input is in communication memory; otherwise
// mapped or slots (with two ranks every order of a sum gives the same bits). A schedule that has no
// mapping uses slots. Not in the table: barrier, send and recv (p2p) and plain_ring.
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
