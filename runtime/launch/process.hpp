// Starting a rank: a process in a group of its own that dies with its launcher.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "runtime/base/process.hpp"
#include "runtime/launch/guardian.hpp"

namespace ringsmith::launch {

struct Process {
  pid_t pid = -1;       // also the number of its process group
  Descriptor out, err;  // the reading ends of its streams
};

// The file that a shell would run under this name. UsageError if there is none.
[[nodiscard]] std::string find_program(const std::string& name);

// Descriptors of the launcher's; -1: none.
struct Inherited {
  int keep = -1;   // the program has it, too, under the same number
  int hurry = -1;  // when this is readable, nobody waits for the program to run
};

// Standard input is empty. From the thread that will live longest: the kernel kills the rank when
// the thread that started it ends. Its group is on the guardian's list before the program runs.
// Returns when the program runs, or after 10 s. Error if the kernel refuses.
[[nodiscard]] Process start_process(const std::string& path,
                                    const std::vector<std::string>& command,
                                    const std::vector<std::string>& environment, Guardian& guardian,
                                    const Inherited& inherited = {});

}  // namespace ringsmith::launch
