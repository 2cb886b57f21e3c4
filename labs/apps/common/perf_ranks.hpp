// The ranks of this process: one, or several, each a thread with a device.
#pragma once

#include <functional>

#include "labs/apps/common/perf_options.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith::apps {

// Joins the job and runs body on each rank of this process, with the rank's device as its thread's
// current one; returns the largest exit code. What several ranks throw is one error.
int run_ranks(const PerfOptions& options, const std::function<int(comm::ProcessGroup&)>& body);

}  // namespace ringsmith::apps
