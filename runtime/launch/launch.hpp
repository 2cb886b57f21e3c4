// ringrun: starts the ranks of a job, on this node, and stays until all of them have ended.
#pragma once

#include "runtime/launch/options.hpp"

namespace ringsmith::launch {

// The whole of it: store, other nodes, ranks, report. The exit code: Supervisor::run. UsageError
// and CommError for what goes wrong before the ranks start.
[[nodiscard]] int launch(const LaunchOptions& options);

}  // namespace ringsmith::launch
