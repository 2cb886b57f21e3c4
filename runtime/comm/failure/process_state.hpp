// What the kernel says of a process that others wait for: the difference between a hang and a stop.
#pragma once

#include <string>
#include <sys/types.h>

namespace ringsmith::comm {

// ": it is stopped by a signal; kill -CONT 4711 lets it go on", ": its process computes", ": its
// process sleeps", ": its process has ended"; empty if this process may not see it. Same machine
// only.
[[nodiscard]] std::string state_of_process(pid_t pid);

// By a signal or a debugger. False if this process may not see it.
[[nodiscard]] bool is_stopped(pid_t pid);

}  // namespace ringsmith::comm
