// The nodes of a small cluster, all on this machine, on which a launcher starts the processes of a
// job. The processes are forked: a process that has ended remains a zombie until its launcher has
// waited for it.
//
//     launcher   start ... start      wait -> how a process ended      end -> SIGKILL
//     process    program(seat); its return value is the exit code
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "labs/kit/nodes/folder.hpp"
#include "labs/kit/record.hpp"

namespace kit {

// The information that a launcher passes to a process that it starts.
struct Seat {
  std::string job;  // a name shared by all processes of the job, and by no other job
  int rank = -1;
  int world = 0;
};

struct Ended {
  int process = 0;
  int code = 0;    // the process's return value; 0 if a signal killed it
  int signal = 0;  // the number of the signal that killed it, or 0
};

struct Slots {
  std::string node;
  int count = 0;
};

[[nodiscard]] const std::string& host_name();

class Nodes {
 public:
  // Starts the job's program as a process on that node and returns its process id. Throws
  // std::runtime_error if the node does not exist.
  int start(const std::string& node, const Seat& seat);
  // Blocks until that process, or any process, has ended. A process can be waited for only once.
  Ended wait(int process = any);
  // Kills a process that was started here and has not been waited for.
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
