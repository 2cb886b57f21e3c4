// How ranks end, which of several ends was the cause of the others, what the last screen says, and
// whether the kernel killed one for lack of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"

namespace ringsmith::launch {

struct End {
  bool signalled = false;
  bool core_dumped = false;
  int code = 0;  // exit code, or number of the signal

  [[nodiscard]] bool success() const { return !signalled && code == 0; }
  // It has saved, because a signal asked it to stop.
  [[nodiscard]] bool preempted() const {
    return !signalled && code == static_cast<int>(ExitCode::preempted);
  }
  // As a shell reports it: 128 + signal.
  [[nodiscard]] int exit_code() const { return signalled ? 128 + code : code; }
  // "exit code 3", "signal 11 (SIGSEGV), core dumped"
  [[nodiscard]] std::string describe() const;
};

[[nodiscard]] std::string signal_name(int signal);  // "SIGTERM"

struct Failure {
  int rank = -1, local_rank = 0, node = 0;
  std::string host;
  int pid = 0;
  End end;
  std::int64_t when_us = 0;       // since 1970, by the node's clock
  std::int64_t after_us = 0;      // since the node started its ranks
  std::vector<std::string> tail;  // its last lines
  std::string log;                // where all of them are, if anywhere
  std::string hint;               // what may have been behind it
  int blames = -1;                // the rank that its last words name; -1: none

  // As one text for the store. CommError if it is not one.
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static Failure decode(const std::string& text);
};

// Whom a rank's last words blame: "rank 2 (pid 4711 on host-a) is gone", or, where more ranks are
// named, the one behind "To blame:". Its process is not `own`.
struct Blamed {
  int rank = -1, pid = 0;  // rank -1: it counts in a part of the job
  std::string host;
};
[[nodiscard]] std::optional<Blamed> blamed_in(const std::vector<std::string>& tail, int own);

// The failure that explains the others; nothing if there is none. A rank that reports lost or late
// peers (exit codes 3 and 4) is a witness: any other failure goes before it, then the one that it
// blames. Among equals, the first. Two ranks may be found dead in the same instant, and then time
// alone would decide by chance between the murdered and the witness.
[[nodiscard]] std::optional<Failure> root_cause(const std::vector<Failure>& failures);

// The report: several lines, the last one not ended.
[[nodiscard]] std::string describe(const Failure& first, int nodes);

// The folder of a process's control group that counts memory, from the text of its
// /proc/PID/cgroup; empty if there is none. `mounts`: where control groups are to be seen.
[[nodiscard]] std::string memory_group_folder(const std::string& proc_cgroup,
                                              const std::string& mounts = "/sys/fs/cgroup");

// Why a rank was killed: the kernel ends processes of a control group that needs more memory than
// it may have, by SIGKILL, without a word to anybody. The group counts how often.
class MemoryGroup {
 public:
  MemoryGroup() = default;
  // Of the calling process, and its count by now.
  [[nodiscard]] static MemoryGroup own();
  // Version 2's memory.events and memory.max, or version 1's memory.oom_control and
  // memory.limit_in_bytes, in this folder.
  explicit MemoryGroup(std::string folder);

  // What to tell about a process that has just been killed: that the kernel did it, and the limit,
  // for as many processes as the kernel has killed since this was made.
  [[nodiscard]] std::string why_killed();

 private:
  [[nodiscard]] std::int64_t kills() const;  // -1: the group does not say
  [[nodiscard]] std::string limit() const;   // "2 GiB"; empty if there is none

  std::string folder_;
  std::int64_t seen_ = -1;
};

}  // namespace ringsmith::launch
