// ringrun: starts the ranks of a job, on this node, and stays until all of them have ended.
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

  std::string master_address;        // of node 0, as all nodes know it; "": what it listens on
  std::uint16_t master_port = 0;     // 0: a free one, on node 0
  std::string bind;                  // interface or address to listen on; "": the master's
  std::size_t most_strangers = 512;  // connections to the store that have proved nothing yet
  std::string port_file;             // node 0 writes its port there, the others read it; "": none
  std::string secret_file;           // "": the environment, or on one node a random one

  std::string log_folder;  // a file for each stream of each rank; "": none
  bool tee = false;        // with log_folder: show it too
  bool prefix = true;      // "[rank] " before each line shown

  std::chrono::milliseconds join_timeout{600'000};  // for all nodes to come
  std::chrono::milliseconds exit_timeout{300'000};  // for the other nodes to end after this one
  std::chrono::milliseconds grace{5'000};           // between SIGTERM and SIGKILL

  // A rank that is lost is started again, alone, and the others go on without it meanwhile: they
  // are trainings that can (runtime/parallel/per_step.hpp). On one node.
  bool per_step = false;
  int least_ranks = 0;                               // of a step; 0: more than half
  std::chrono::milliseconds quorum_timeout{60'000};  // for fewer, or for a silent one

  std::vector<std::string> command;  // program and arguments
};

// The whole of it: store, other nodes, ranks, report. The exit code: 0 if all ranks of all nodes
// ended well; else that of the rank that failed first (128 + signal), 128 + signal if a signal to
// ringrun ended the job, 3 if another node's launcher is lost. UsageError and CommError for what
// goes wrong before the ranks start.
[[nodiscard]] int launch(const LaunchOptions& options);

}  // namespace ringsmith::launch
