// Information about the processor from the kernel.
#pragma once

#include <optional>
#include <string>

namespace ringsmith::apps {

// Returns the text of /proc/cpuinfo.
[[nodiscard]] std::string processor_text();

// Returns the processor's name in such a text. On x86 this is "model name". On arm64 there is no
// name, so it is composed of the first core's implementer and part ("Arm Neoverse-N1", or the
// numbers). Returns "unknown CPU" if the text has neither.
[[nodiscard]] std::string processor_name(const std::string& cpuinfo);

// Returns the number of processors that this process may keep busy: those in its affinity mask, or
// its CPU quota, rounded down, if that is smaller. At least 1.
[[nodiscard]] int allowed_cores();
// Returns the number of processors in this process's affinity mask.
[[nodiscard]] int cores_to_run_on();

// Returns the CPU quota that control groups impose on this process, in processors (docker --cpus,
// CPUQuota=, a limit of Kubernetes): the smallest quota of its group and its ancestors, or nothing
// if there is no quota. groups: the text of /proc/PID/cgroup; mounts: the mount point of the
// control groups.
[[nodiscard]] std::optional<double> cpu_quota();
[[nodiscard]] std::optional<double> cpu_quota(const std::string& groups, const std::string& mounts);

// True if the first processor has this flag ("ospke").
[[nodiscard]] bool has_processor_flag(const std::string& cpuinfo, const std::string& flag);

}  // namespace ringsmith::apps
