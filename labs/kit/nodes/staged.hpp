// For drivers: nodes with a program, and the results of its processes.
#pragma once

#include <string>
#include <vector>

#include "labs/kit/nodes/nodes.hpp"

namespace kit {

class StagedNodes : public Nodes {
 public:
  StagedNodes(std::vector<std::string> names, Folder folder, Program program)
      : Nodes(std::move(names), std::move(folder), std::move(program)) {}
  // Puts the values of each process into `out` as "NAME.INDEX", where INDEX counts the starts from
  // 0, with the arguments of the start and the exit code. Also counts the processes that were not
  // waited for, "running" and "zombies", and kills the running ones. Rethrows a process's error.
  // Unless deaths_are_planned, a process killed by a signal that its launcher did not send is an
  // error, too.
  void observe(Observation& out, bool deaths_are_planned = false);
};

// Blocks until `processes` processes, not counting those of the job `but`, have used the folder,
// or until about 2 s have passed, because a student's processes may never use the folder. In either
// case, blocks for another 100 ms.
void wait_until_asked(int processes, const std::string& but);

}  // namespace kit
