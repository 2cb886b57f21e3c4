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

// How many processors this process may keep busy: those that it may run on, or fewer by a quota,
// rounded down; at least 1.
[[nodiscard]] int allowed_cores();
// How many of them it may run on.
[[nodiscard]] int cores_to_run_on();

// The CPU time that control groups allow this process, in processors (docker --cpus, CPUQuota=, a
// limit of Kubernetes): the least of its group and those above; nothing: as much as there is.
// groups: the text of /proc/PID/cgroup; mounts: where control groups are to be seen.
[[nodiscard]] std::optional<double> cpu_quota();
[[nodiscard]] std::optional<double> cpu_quota(const std::string& groups, const std::string& mounts);

// Has the first processor this flag ("ospke")?
[[nodiscard]] bool has_processor_flag(const std::string& cpuinfo, const std::string& flag);

}  // namespace ringsmith::apps
