// The launcher's watch over the ranks of one node, from their start to the report, in one round.
//
//                 a rank fails,
//               a node's verdict
//     running ------------------> settling --0.2 s--> ending --grace--> killing --> over
//        |                                              ^
//        +---------- a signal to ringrun ---------------+
//
// Settling: when one rank dies, those that talk to it fail too, within milliseconds; they get that
// long to say why, and to be told apart from the one that was first. Ending: SIGTERM (or the signal
// that ringrun got) to every rank's process group. Killing: SIGKILL. With per_step a rank that is
// lost while all run is started again, alone, and the phase stays.
#pragma once

#include <string>

#include "runtime/launch/nodes.hpp"
#include "runtime/launch/rendezvous.hpp"

namespace ringsmith::launch {

constexpr std::chrono::milliseconds kDeath{5'000};  // for SIGKILL to do its work

// One line on standard error.
void say(const std::string& text);

struct RoundEnd {
  int exit_code = 0;  // launch.hpp
  Rendezvous::End how = Rendezvous::End::none;
};

// Starts the ranks here, options.command with `program` as its file, and waits for the end of the
// round. Signals are blocked meanwhile; between two rounds one ends ringrun at once, and the kernel
// its ranks.
[[nodiscard]] RoundEnd supervise(const LaunchOptions& options, const Round& round,
                                 const std::string& program, Guardian& guardian, Nodes& nodes,
                                 Rendezvous& rendezvous);

}  // namespace ringsmith::launch
