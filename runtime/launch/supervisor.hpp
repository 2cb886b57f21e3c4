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

// The signals that ringrun passes on, or that end it. While this object lives they are blocked and
// read from a descriptor, except the signals that were ignored at our start. It is created before
// the nodes meet, so that the supervisor can tell the other nodes which signal ended this ringrun.
// A signal still pending at its end ends ringrun, and the kernel ends its ranks.
struct Signals {
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  Descriptor all;     // signalfd
  Descriptor ending;  // signalfd, polled, not read: a signal that ends us is pending
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
