#include "labs/apps/common/processor.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sched.h>
#include <span>
#include <sstream>

namespace ringsmith::apps {

namespace {

struct Name {
  unsigned number;
  const char* name;
};

// The common entries of Arm's registry of implementers and of Arm's list of part numbers.
constexpr Name kImplementers[] = {{0x41, "Arm"},    {0x46, "Fujitsu"},       {0x48, "HiSilicon"},
                                  {0x4e, "NVIDIA"}, {0x50, "Applied Micro"}, {0x51, "Qualcomm"},
                                  {0x61, "Apple"},  {0xc0, "Ampere"}};
constexpr Name kArmParts[] = {{0xd03, "Cortex-A53"},          {0xd08, "Cortex-A72"},
                              {0xd0b, "Cortex-A76"},          {0xd0c, "Neoverse-N1"},
                              {0xd40, "Neoverse-V1"},         {0xd49, "Neoverse-N2"},
                              {0xd4f, "Neoverse-V2 (Grace)"}, {0xd8e, "Neoverse-N3"}};
constexpr unsigned kArm = 0x41;

std::string name_in(std::span<const Name> names, unsigned number) {
  for (const Name& n : names)
    if (n.number == number) return n.name;
  return {};
}

// Returns the value of the first line "key   : value", or an empty string if there is none.
std::string value_of(const std::string& text, const std::string& key) {
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.compare(0, key.size(), key) != 0) continue;
    if (line.find_first_not_of(" \t", key.size()) != colon) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return {};
}

}  // namespace

std::string processor_text() {
  std::ifstream in("/proc/cpuinfo");
  return {std::istreambuf_iterator<char>(in), {}};
}

int cores_to_run_on() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

int allowed_cores() {
  const double quota = cpu_quota().value_or(cores_to_run_on());
  return std::clamp(static_cast<int>(quota), 1, cores_to_run_on());
}

std::optional<double> cpu_quota() {
  std::ifstream in("/proc/self/cgroup");
  return cpu_quota({std::istreambuf_iterator<char>(in), {}}, "/sys/fs/cgroup");
}

// A line of `groups` is "1:cpu,cpuacct:/a/b" for control groups of version 1, and "0::/a/b" for
// version 2; some machines have both. In a container, the path may be the host's, while the
// container's own group is mounted as the root.
std::optional<double> cpu_quota(const std::string& groups, const std::string& mounts) {
  std::optional<double> least;
  const auto take = [&](const std::string& quota, double period) {
    const double processors = std::atof(quota.c_str()) / period;  // "max" and "-1": no quota
    if (processors > 0 && std::isfinite(processors))
      least = std::min(least.value_or(processors), processors);
  };
  const auto look_in = [&](const std::string& folder) {
    std::string quota;
    double period = 0;
    if (std::ifstream(folder + "/cpu.max") >> quota >> period) take(quota, period);
    if (std::ifstream(folder + "/cpu.cfs_quota_us") >> quota &&
        std::ifstream(folder + "/cpu.cfs_period_us") >> period)
      take(quota, period);
  };
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t one = line.find(':'), two = line.find(':', one + 1);
    if (one == std::string::npos || two == std::string::npos) continue;
    const std::string controllers = line.substr(one + 1, two - one - 1);
    const bool second = controllers.empty();
    if (!second && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    for (std::string path = line.substr(two + 1);; path.resize(path.rfind('/'))) {
      if (path == "/") path.clear();
      look_in(mounts + (second ? "" : "/cpu") + path);
      if (path.find('/') == std::string::npos) break;
    }
  }
  return least;
}

std::string processor_name(const std::string& cpuinfo) {
  if (std::string name = value_of(cpuinfo, "model name"); !name.empty()) return name;
  const std::string maker = value_of(cpuinfo, "CPU implementer");
  const std::string part = value_of(cpuinfo, "CPU part");
  if (maker.empty()) return "unknown CPU";
  const auto number = [](const std::string& text) {
    return static_cast<unsigned>(std::strtoul(text.c_str(), nullptr, 0));
  };
  const std::string who = name_in(kImplementers, number(maker));
  const std::string which =
      number(maker) == kArm ? name_in(kArmParts, number(part)) : std::string();
  return (who.empty() ? "implementer " + maker : who) + " " +
         (which.empty() ? "part " + part : which);
}

bool has_processor_flag(const std::string& cpuinfo, const std::string& flag) {
  return (" " + value_of(cpuinfo, "flags") + " ").find(" " + flag + " ") != std::string::npos;
}

}  // namespace ringsmith::apps
