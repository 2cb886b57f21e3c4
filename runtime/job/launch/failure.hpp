// How a rank ended, which failure caused the others, the final report, and the detection of ranks
// that the kernel killed for lack of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"

namespace ringsmith::launch {

// After the first failure, the other ranks may report theirs (settling), then get SIGTERM (ending),
// then SIGKILL (killing).
enum class JobPhase : std::uint8_t { running, settling, ending, killing };

struct ExitStatus {
  bool signalled = false;
  bool core_dumped = false;
  int code = 0;  // exit code, or signal number

  [[nodiscard]] bool success() const { return !signalled && code == 0; }
  // True if the rank saved its state and ended because a signal asked it to stop.
  [[nodiscard]] bool preempted() const {
    return !signalled && code == static_cast<int>(ExitCode::preempted);
  }
  // As a shell reports it: 128 + signal if a signal killed the rank.
  [[nodiscard]] int exit_code() const { return signalled ? 128 + code : code; }
  // "exit code 3", "signal 11 (SIGSEGV), core dumped"
  [[nodiscard]] std::string describe() const;
};

[[nodiscard]] std::string signal_name(int signal);  // "SIGTERM"

struct Failure {
  int rank = -1, local_rank = 0, node = 0;
  std::string host;
  int pid = 0;
  ExitStatus end;
  std::int64_t when_us = 0;       // microseconds since 1970, by the node's clock
  std::int64_t after_us = 0;      // microseconds since the node started its ranks
  std::vector<std::string> tail;  // last lines of the rank's output
  std::string log;                // files with the whole output; "": none
  std::string hint;               // a possible reason
  int blames = -1;                // the rank that its last output blames; -1: none

  // Converts to a binary string for the store. decode() throws CommError if it cannot parse the
  // string.
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static Failure decode(const std::string& text);
};

// The process that a rank's last output blames: the first process in the last line that names a
// process, as in "rank 2 (pid 4711 on host-a) is gone". If the line contains "To blame: ", only the
// text after it counts. The process `own` is ignored.
struct Blamed {
  int rank = -1, pid = 0;  // rank -1: the message numbers the ranks of a subgroup
  std::string host;
};
[[nodiscard]] std::optional<Blamed> blamed_in(const std::vector<std::string>& tail, int own);

// Returns the failure that explains the others; empty if there is none. A rank that reports lost or
// late peers (exit codes 3 and 4) is a witness. Chooses the earliest failure of a rank that is not
// a witness. If all are witnesses, starts from the earliest and follows the ranks that they blame.
// Time alone is not enough: two ranks may be found dead at the same instant.
[[nodiscard]] std::optional<Failure> root_cause(const std::vector<Failure>& failures);

// The report: several lines, the last without a newline.
[[nodiscard]] std::string describe(const Failure& first, int nodes);

// The directory of the control group that accounts for a process's memory, from the text of
// /proc/PID/cgroup; empty if there is none.
[[nodiscard]] std::string memory_group_folder(const std::string& proc_cgroup,
                                              const std::string& mounts = "/sys/fs/cgroup");

// Explains why a rank was killed: if a control group exceeds its memory limit, the kernel kills a
// process in it with SIGKILL, and counts the kill in a file of the group.
class MemoryGroup {
 public:
  MemoryGroup() = default;
  // The calling process's group.
  [[nodiscard]] static MemoryGroup own();
  // Reads memory.events and memory.max (version 2) or memory.oom_control and memory.limit_in_bytes
  // (version 1) in this directory.
  explicit MemoryGroup(std::string folder);

  // Explains the SIGKILL that has just killed a process. Each call that blames the kernel uses up
  // one of the kills counted since this object was created.
  [[nodiscard]] std::string why_killed();

 private:
  [[nodiscard]] std::int64_t kills() const;  // -1: unknown
  [[nodiscard]] std::string limit() const;   // "2 GiB"; empty if there is none

  std::string folder_;
  std::int64_t seen_ = -1;
};

}  // namespace ringsmith::launch
