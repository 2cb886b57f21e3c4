// What the kernel says about the processor.
#pragma once

#include <optional>
#include <string>

namespace ringsmith::apps {

// The text of /proc/cpuinfo.
[[nodiscard]] std::string processor_text();

// The name in such a text: x86's "model name"; arm64 has none, but who made the first core and
// which part it is ("Arm Neoverse-N1", or the numbers). "unknown CPU" without either.
[[nodiscard]] std::string processor_name(const std::string& cpuinfo);

// The number of processors that this process may keep busy: its affinity mask, or a smaller CPU
// quota, rounded down; at least 1.
[[nodiscard]] int allowed_cores();
// How many of them it may run on.
[[nodiscard]] int cores_to_run_on();

// The CPU time that control groups allow this process, in processors (docker --cpus, CPUQuota=, a
// limit of Kubernetes): the smallest quota of its group and the groups above it; nothing: no quota.
// groups: the text of /proc/PID/cgroup; mounts: the root of the control groups.
[[nodiscard]] std::optional<double> cpu_quota();
[[nodiscard]] std::optional<double> cpu_quota(const std::string& groups, const std::string& mounts);

// Has the first processor this flag ("ospke")?
[[nodiscard]] bool has_processor_flag(const std::string& cpuinfo, const std::string& flag);

}  // namespace ringsmith::apps
