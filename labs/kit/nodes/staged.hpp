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
  // Adds to `out` each process's record as "NAME.INDEX", numbered in the order of starts, with how
  // it was started and how it ended, and the numbers of processes that were not waited for
  // ("running", "zombies"). Rethrows a process's error; an unplanned death by a signal is an error,
  // too.
  void observe(Observation& out, bool deaths_are_planned = false);
};

// Blocks until `processes` processes, not counting the job `but`, have used the folder, and then
// for another 100 ms. Gives up after 2 s, because a student's processes may never use it.
void wait_until_asked(int processes, const std::string& but);

}  // namespace kit
