// ringrun: starts the ranks of a job on this node and waits until all of them have exited. If a
// rank fails or a node is lost, it may start all ranks again, in a new round.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace ringsmith::launch {

struct LaunchOptions {
  int ranks_here = 1;  // processes that this launcher starts
  int nodes = 1;       // launchers of the job, this one included
  int node = 0;        // index of this launcher; node 0 holds the store

  int max_restarts = 0;        // maximum number of rounds after a failure or a node's loss
  bool nodes_numbered = true;  // false: numbered when they meet, and `nodes` is the maximum
  int least_nodes = 1;         // minimum for a round, if nodes_numbered is false
  std::string job = "none";    // its name; a node of another job is rejected
  std::chrono::milliseconds last_call{5'000};  // to wait for more nodes once there are enough

  std::string master_address;     // of node 0, as all nodes know it; "": where it listens
  std::uint16_t master_port = 0;  // 0: node 0 takes a free port
  std::string bind;               // interface or address to listen on; "": the master's
  std::size_t max_pending_strangers =
      512;                  // connections to the store that are not authenticated yet
  std::string port_file;    // node 0 writes its port there, the others read it; "": none
  std::string secret_file;  // "": from the environment, random if one node, or the user's
  bool no_secret = false;   // anyone who reaches the store may join

  std::string log_folder;  // one file per stream and rank; "": none
  bool tee = false;        // with log_folder: also show the output
  bool prefix = true;      // "[rank] " before each line shown

  std::chrono::milliseconds join_timeout{600'000};  // for all nodes to arrive
  std::chrono::milliseconds exit_timeout{300'000};  // for the other nodes to end after this one
  // Time between SIGTERM (or the signal that ringrun received) and SIGKILL: `grace` if the ranks
  // are asked to stop and may save, `failure_grace` after a failure.
  std::chrono::milliseconds grace{30'000}, failure_grace{5'000};

  // A lost rank is restarted alone while the others continue without it. Only for programs that
  // support it (runtime/parallel/beyond/per_step.hpp), and on one node.
  bool per_step = false;
  int least_ranks = 0;                               // ranks that a step needs; ringrun replaces 0
  std::chrono::milliseconds quorum_timeout{60'000};  // for missing or silent ranks

  std::vector<std::string> command;  // program and arguments
};

// Runs the job: rendezvous, store, other nodes, ranks, report, further rounds. Returns the exit
// code of the last round:
//   0             all ranks of all nodes succeeded (1 if some output was lost)
//   75            all ranks here (with per_step: any) exited with ExitCode::preempted
//   a rank's      a rank failed: the code of the first to fail, or 128 + the signal that killed it
//   128 + signal  ringrun got a signal and ended the ranks, which had not all exited with 75
//   3             another node's launcher was lost
//   an ExitCode   the round could not be formed, in a job with a rendezvous (4: timeout, ...)
//   1             the job ended for any other reason
// Throws UsageError or CommError if the job cannot start, or this node gets no place in a round.
[[nodiscard]] int launch(const LaunchOptions& options);

}  // namespace ringsmith::launch
