// One process group on forked ranks, and what became of each rank: its error, the peer that the
// error names, and when it ended.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/process_group.hpp"
#include "tests/fault/forked_ranks.hpp"

namespace ringsmith::test {

struct Outcome {
  bool killed = false;  // by a signal
  std::string error;    // "PeerLost: text", or empty if the body returned
  int peer = -1;        // Where::peer of the error
  double seconds = 0;   // from the start to the end of the process
  pid_t pid = 0;
};

// Runs body on every rank; waits for all of them, at most 20 s (then kills, and says so in error).
// With a device in the options, rank r gets the r-th one from there on, and has it as its current.
std::vector<Outcome> run_ranks(int world, comm::GroupOptions options,
                               const std::function<void(comm::ProcessGroup&)>& body);

}  // namespace ringsmith::test
