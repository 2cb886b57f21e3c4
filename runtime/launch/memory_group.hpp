// Why a rank was killed: the kernel ends processes of a control group that needs more memory than
// it may have, by SIGKILL, without a word to anybody. The group counts how often.
#pragma once

#include <cstdint>
#include <string>

namespace ringsmith::launch {

// The folder of a process's control group that counts memory, from the text of its
// /proc/PID/cgroup; empty if there is none. `mounts`: where control groups are to be seen.
[[nodiscard]] std::string memory_group_folder(const std::string& proc_cgroup,
                                              const std::string& mounts = "/sys/fs/cgroup");

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
