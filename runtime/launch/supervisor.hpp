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

// The signals that ringrun passes on, or ends by. While this lives they wait to be read, but for
// those that were ignored at our start. From before the nodes meet: who has met us learns from the
// supervisor what ended us. Afterwards one that still waits ends ringrun, and the kernel its ranks.
struct Signals {
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  Descriptor all;     // signalfd
  Descriptor ending;  // signalfd, only looked at: one that ends us is waiting
};

// One line on standard error.
void say(const std::string& text);

struct RoundEnd {
  int exit_code = 0;  // launch.hpp
  Rendezvous::End how = Rendezvous::End::none;
};

// Starts the ranks here, options.command with `program` as its file, and waits for the end of the
// round.
[[nodiscard]] RoundEnd supervise(const LaunchOptions& options, const Round& round,
                                 const std::string& program, const Signals& signals,
                                 Guardian& guardian, Nodes& nodes, Rendezvous& rendezvous);

}  // namespace ringsmith::launch
