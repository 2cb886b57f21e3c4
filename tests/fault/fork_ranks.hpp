#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/process_group.hpp"
#include "tests/fault/forked_ranks.hpp"

namespace ringsmith::test {

struct Outcome {
  bool killed = false;  // by a signal or at the deadline
  std::string error;    // "PeerLost: text", or empty if the body returned or a signal killed it
  int peer = -1;        // Where::peer of the error
  double seconds = 0;   // from the start to the end of the process
  pid_t pid = 0;
};

// Runs body on every rank. Waits at most 20 s for all of them, then kills the rest, whose errors
// end with "(still running)". If the options name a device, rank r uses the r-th device after it,
// modulo the number of devices.
std::vector<Outcome> run_ranks(int world, comm::GroupOptions options,
                               const std::function<void(comm::ProcessGroup&)>& body);

}  // namespace ringsmith::test
