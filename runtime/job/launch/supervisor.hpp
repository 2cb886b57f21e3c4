// Watches over the ranks of one node during one round, from their start to the report.
//
//                 a rank fails,
//               a node's verdict
//     running ------------------> settling --0.2 s--> ending --grace--> killing --> over
//        |                                              ^
//        +---------- a signal to ringrun ---------------+
//
// Settling: when a rank dies, its peers fail within milliseconds. They have 0.2 s to report the
// reason, which distinguishes them from the rank that failed first. Ending: SIGTERM (or the signal
// that ringrun got) goes to every rank's process group. Killing: SIGKILL. With per_step, a rank
// that is lost while running is restarted alone, and the phase does not change.
#pragma once

#include <string>

#include "runtime/job/launch/nodes.hpp"
#include "runtime/job/launch/rendezvous.hpp"

namespace ringsmith::launch {

constexpr std::chrono::milliseconds kDeath{5'000};  // for SIGKILL to take effect

// The signals that ringrun passes on, or that terminate it. While this object exists they are
// blocked and read from a descriptor, except those that were ignored when ringrun started. If
// SIGTERM, SIGINT, SIGHUP or SIGQUIT is still pending, the destructor terminates ringrun, and the
// kernel kills its ranks.
struct Signals {
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  Descriptor all;     // signalfd
  Descriptor ending;  // signalfd, never read; readable while a signal that ends ringrun is pending
};

void say(const std::string& text);

struct RoundEnd {
  int exit_code = 0;  // see launch()
  Rendezvous::Outcome how = Rendezvous::Outcome::none;
};

// Starts the ranks here (`program` is the file of options.command) and blocks until the round ends.
[[nodiscard]] RoundEnd supervise(const LaunchOptions& options, const Round& round,
                                 const std::string& program, const Signals& signals,
                                 Guardian& guardian, Nodes& nodes, Rendezvous& rendezvous);

}  // namespace ringsmith::launch
