// Runs one call at a time: opens it with the roll call and picks the executor.
//
// | message                            | executor | order of the sum          |
// |------------------------------------|----------|---------------------------|
// | up to kOneShotBytes, no algorithm  | window   | ((x0 + x1) + x2) + ...    |
// |   asked for                        |          |                           |
// | all buffers in communication       | mapped   | the schedule's            |
// |   memory                           |          |                           |
// | anything else                      | slots    | the schedule's            |
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
  void run_schedule(const Transfer& transfer);
  // Fills buffers_ if every rank's buffers are shared; tells whether any rank works in place.
  [[nodiscard]] bool all_shared(const Transfer& transfer, bool& in_place);

  Host& host_;
  RollCall roll_call_;
  Channels channels_;
  Library library_;
  Buffers buffers_;  // kept to spare an allocation per call
};

}  // namespace ringsmith::comm
