// ringrun: starts the ranks of a job, on this node, and stays until all of them have ended. When
// one fails or a node is lost, it may start all of them again, in a new round.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace ringsmith::launch {

// What a launch is asked to do.
struct LaunchOptions {
  int ranks_here = 1;  // processes that this launcher starts
  int nodes = 1;       // launchers of the job, this one included
  int node = 0;        // which of them this is; node 0 holds the store

  int max_restarts = 0;        // rounds after a failure or the loss of a node
  bool nodes_numbered = true;  // else they are when they meet, and `nodes` is the most of them
  int least_nodes = 1;         // with which a round may begin, then
  std::string job = "none";    // its name: a node of another job is refused
  std::chrono::milliseconds last_call{5'000};  // for more nodes to come, once there are enough

  std::string master_address;        // of node 0, as all nodes know it; "": what it listens on
  std::uint16_t master_port = 0;     // 0: a free one, on node 0
  std::string bind;                  // interface or address to listen on; "": the master's
  std::size_t most_strangers = 512;  // connections to the store that have proved nothing yet
  std::string port_file;             // node 0 writes its port there, the others read it; "": none
  std::string secret_file;           // "": the environment, or the user's; on one node a random one
  bool no_secret = false;            // whoever reaches the store may join

  std::string log_folder;  // a file for each stream of each rank; "": none
  bool tee = false;        // with log_folder: show it too
  bool prefix = true;      // "[rank] " before each line shown

  std::chrono::milliseconds join_timeout{600'000};  // for all nodes to come
  std::chrono::milliseconds exit_timeout{300'000};  // for the other nodes to end after this one
  // From SIGTERM, or the signal that ringrun got, to SIGKILL: for ranks that are asked to stop and
  // may save; and after a failure, when they cannot save.
  std::chrono::milliseconds grace{30'000}, failure_grace{5'000};

  // A rank that is lost is started again, alone, and the others go on without it meanwhile: they
  // are trainings that can (runtime/parallel/per_step.hpp). On one node.
  bool per_step = false;
  int least_ranks = 0;                               // of a step; 0: more than half
  std::chrono::milliseconds quorum_timeout{60'000};  // for fewer, or for a silent one

  std::vector<std::string> command;  // program and arguments
};

// The whole of it: rendezvous, store, other nodes, ranks, report, and again. The exit code: 0 if
// all ranks of all nodes ended well; else, of the last round, that of the rank that failed first
// (128 + signal); 75 (ExitCode::preempted) if all ranks here ended so, 128 + signal if a signal to
// ringrun ended them otherwise; 3 if another node's launcher is lost.
// UsageError and CommError for what goes wrong before the ranks start.
[[nodiscard]] int launch(const LaunchOptions& options);

}  // namespace ringsmith::launch
