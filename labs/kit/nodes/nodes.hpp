// The nodes of a small cluster, all of them on this machine: where a launcher starts the processes
// of a job. They are real processes, forked, and they cost what processes cost: one that has ended
// stays in the system's table, as a zombie, until its launcher has asked how it ended.
//
//     launcher   start ... start      wait -> how one ended      end -> SIGKILL
//     process    program(seat), and the exit code is what it returns
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "labs/kit/nodes/folder.hpp"
#include "labs/kit/record.hpp"

namespace kit {

// What a launcher tells a process that it starts.
struct Seat {
  std::string job;  // a name that all processes of the job have, and no other job
  int rank = -1;
  int world = 0;
};

// How a process ended. As in the system: one that a signal killed has no exit code.
struct Ended {
  int process = 0;
  int code = 0;    // what it returned, 0 when a signal killed it
  int signal = 0;  // the number of the signal that killed it, else 0
};

// How many processes a node is to have.
struct Slots {
  std::string node;
  int count = 0;
};

// The name of the node on which this process runs.
[[nodiscard]] const std::string& host_name();

class Nodes {
 public:
  // Starts the job's program as a process of that node, and returns the process's number. Throws
  // std::runtime_error when there is no such node.
  int start(const std::string& node, const Seat& seat);
  // Waits until that process, or any, has ended; each can be waited for once.
  Ended wait(int process = any);
  // Kills a process that was started here, and has not been waited for.
  void end(int process);
  static constexpr int any = -1;
  [[nodiscard]] Folder& folder() { return folder_; }

  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

 protected:  // labs/kit/nodes/staged.hpp
  struct Process;
  using Program = std::function<int(const Seat&, Observation&)>;
  Nodes(std::vector<std::string> names, Folder folder, Program program);
  ~Nodes();
  Process& find(int process);
  Ended settle(Process& one, int status);
  Folder folder_;
  std::vector<std::string> names_;
  Program program_;
  std::vector<std::unique_ptr<Process>> processes_;
};

}  // namespace kit
