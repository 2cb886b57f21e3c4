// For drivers: nodes with a program, and what became of its processes.
#pragma once

#include <string>
#include <vector>

#include "labs/kit/nodes/nodes.hpp"

namespace kit {

class StagedNodes : public Nodes {
 public:
  // program(seat, record) runs in every process that is started; what it returns is the exit code.
  StagedNodes(std::vector<std::string> names, Folder folder, Program program)
      : Nodes(std::move(names), std::move(folder), std::move(program)) {}
  // Each process's record as "NAME.INDEX", the index being that of the start; how it was started
  // and how it ended; and how many were not waited for ("running", "zombies"). Throws what a
  // process threw; a death by a signal is one unless deaths are planned.
  void observe(Observation& out, bool deaths_are_planned = false);
};

// Until so many processes have asked the folder, not counting those of the job `but`; and a little
// longer. For 2 s at most: a student's processes that never ask are for the judge to find.
void wait_until_asked(int processes, const std::string& but);

}  // namespace kit
