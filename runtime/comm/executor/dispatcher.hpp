// Runs one call at a time. In the agreement barrier of a collective, every rank announces its
// buffers. The executor that schedule/select.hpp chooses runs the call.
#pragma once

#include "runtime/comm/executor/executors.hpp"
#include "runtime/comm/executor/schedule_cache.hpp"

namespace ringsmith::comm {

class Dispatcher {
 public:
  explicit Dispatcher(Peers& peers);
  void run(const Transfer& transfer);
  // The only agreement barrier of the group; the device engines share it.
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
