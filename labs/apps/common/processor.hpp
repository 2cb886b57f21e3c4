#pragma once

#include <optional>
#include <string>

namespace ringsmith::apps {

[[nodiscard]] std::string processor_text();

// Returns the processor's name in the text of /proc/cpuinfo. On Arm the text has no "model name",
// so the name is composed of the first core's implementer and part ("Arm Neoverse-N1", or the
// numbers). Returns "unknown CPU" if the text has neither a model name nor an implementer.
[[nodiscard]] std::string processor_name(const std::string& cpuinfo);

// Number of processors that this process can keep busy: its affinity mask or its CPU quota (rounded
// down), whichever is smaller, but at least 1.
[[nodiscard]] int allowed_cores();
// Number of processors in this process's affinity mask.
[[nodiscard]] int cores_to_run_on();

// The CPU quota of this process, in processors (docker --cpus, CPUQuota=, a limit of Kubernetes):
// the smallest quota of its control group and of that group's ancestors. groups: the text of
// /proc/PID/cgroup; mounts: the mount point of the control groups.
[[nodiscard]] std::optional<double> cpu_quota();
[[nodiscard]] std::optional<double> cpu_quota(const std::string& groups, const std::string& mounts);

[[nodiscard]] bool has_processor_flag(const std::string& cpuinfo, const std::string& flag);

}  // namespace ringsmith::apps
