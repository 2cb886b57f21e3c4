// trace.json: the events of all ranks on one clock, gathered to rank 0 and written there.
#pragma once

#include <string>
#include <vector>

#include "labs/apps/common/step_clock.hpp"
#include "runtime/base/clock_offset.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith::apps {

// Collective. Each rank's clock against rank 0's (rank 0 gets them all, the others their own), from
// ping-pongs. Ranks on one host share CLOCK_MONOTONIC, and then the estimate must be compatible
// with 0, which is exact; an estimate that is not is used as it is, and said so in the trace.
[[nodiscard]] std::vector<ClockOffset> clock_offsets(comm::ProcessGroup& group);

// Collective. Writes path on rank 0; UsageError or Error there if it cannot be written, QuietStop
// on the others.
void write_trace(comm::ProcessGroup& group, const StepClock& clock, const std::string& path);

}  // namespace ringsmith::apps
