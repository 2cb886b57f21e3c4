#include "runtime/launch/memory_group.hpp"

#include <charconv>
#include <fmt/format.h>
#include <fstream>
#include <sstream>

namespace ringsmith::launch {

namespace {

constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;  // version 1 has a number for that

std::string whole_file(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The number on the line that starts with the word; -1 without one.
std::int64_t number_after(const std::string& text, const std::string& word) {
  std::istringstream in(text);
  std::int64_t number = -1;
  for (std::string name, value; in >> name >> value;)
    if (name == word) std::from_chars(value.data(), value.data() + value.size(), number);
  return number;
}

bool has_controller(const std::string& list, const std::string& name) {
  return ("," + list + ",").find("," + name + ",") != std::string::npos;
}

}  // namespace

// Lines "4:memory:/a/b" in version 1, "0::/a/b" in version 2; on some machines both.
std::string memory_group_folder(const std::string& proc_cgroup, const std::string& mounts) {
  std::istringstream in(proc_cgroup);
  std::string folder;
  for (std::string line; std::getline(in, line);) {
    const std::size_t one = line.find(':'), two = line.find(':', one + 1);
    if (one == std::string::npos || two == std::string::npos) continue;
    const std::string controllers = line.substr(one + 1, two - one - 1);
    const std::string path = line.substr(two + 1);
    if (has_controller(controllers, "memory")) return mounts + "/memory" + path;
    if (controllers.empty()) folder = mounts + path;
  }
  return folder;
}

MemoryGroup MemoryGroup::own() {
  return MemoryGroup(memory_group_folder(whole_file("/proc/self/cgroup")));
}

MemoryGroup::MemoryGroup(std::string folder) : folder_(std::move(folder)), seen_(kills()) {}

std::int64_t MemoryGroup::kills() const {
  if (folder_.empty()) return -1;
  const std::int64_t two = number_after(whole_file(folder_ + "/memory.events"), "oom_kill");
  return two >= 0 ? two : number_after(whole_file(folder_ + "/memory.oom_control"), "oom_kill");
}

std::string MemoryGroup::limit() const {
  std::string text = whole_file(folder_ + "/memory.max");
  if (text.empty()) text = whole_file(folder_ + "/memory.limit_in_bytes");
  std::int64_t bytes = -1;
  std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (bytes < 0 || bytes >= kNoLimit) return {};
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  return bytes % (kMiB << 10) == 0 ? fmt::format("{} GiB", bytes / (kMiB << 10))
                                   : fmt::format("{} MiB", bytes / kMiB);
}

std::string MemoryGroup::why_killed() {
  if (seen_ < 0 || kills() <= seen_)
    return "killed by somebody, or by the kernel for want of memory: 'dmesg' tells";
  ++seen_;
  const std::string most = limit();
  return "the kernel killed it for want of memory: its control group" +
         (most.empty() ? " or one above it has reached its limit" : " may have " + most) +
         "; fewer ranks, a smaller batch, or a higher limit help";
}

}  // namespace ringsmith::launch
