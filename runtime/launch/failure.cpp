#include "runtime/launch/failure.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <ctime>
#include <fmt/format.h>
#include <fstream>
#include <sstream>

#include "runtime/base/error.hpp"
#include "runtime/comm/bootstrap/store/store.hpp"

namespace ringsmith::launch {

namespace {

bool is_witness(const Failure& f) {
  return !f.end.signalled && (f.end.code == static_cast<int>(ExitCode::communication) ||
                              f.end.code == static_cast<int>(ExitCode::timeout));
}

std::string local_time(std::int64_t us) {
  const std::time_t seconds = us / 1'000'000;
  std::tm parts{};
  localtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  return fmt::format("{}.{:03}", text.data(), us / 1000 % 1000);
}

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

std::string signal_name(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "SIG" + std::to_string(signal);
}

std::string End::describe() const {
  if (!signalled) return fmt::format("exit code {}", code);
  return fmt::format("signal {} ({}){}", code, signal_name(code),
                     core_dumped ? ", core dumped" : "");
}

std::string Failure::encode() const {
  std::vector<std::string> texts{host, log, hint};
  for (const std::int64_t n :
       {std::int64_t{rank}, std::int64_t{local_rank}, std::int64_t{node}, std::int64_t{pid},
        std::int64_t{end.signalled}, std::int64_t{end.core_dumped}, std::int64_t{end.code}, when_us,
        after_us})
    texts.push_back(std::to_string(n));
  texts.insert(texts.end(), tail.begin(), tail.end());
  return comm::store::Message{0, 0, std::move(texts)}.encode();
}

Failure Failure::decode(const std::string& text) {
  constexpr std::size_t kFixed = 12;
  const auto m = comm::store::Message::decode(text);
  if (m.texts.size() < kFixed) throw CommError("a report of a failure is too short");
  const auto number = [&m](std::size_t i) { return std::strtoll(m.texts[i].c_str(), nullptr, 10); };
  Failure f;
  f.host = m.texts[0];
  f.log = m.texts[1];
  f.hint = m.texts[2];
  f.rank = static_cast<int>(number(3));
  f.local_rank = static_cast<int>(number(4));
  f.node = static_cast<int>(number(5));
  f.pid = static_cast<int>(number(6));
  f.end = {number(7) != 0, number(8) != 0, static_cast<int>(number(9))};
  f.when_us = number(10);
  f.after_us = number(11);
  f.tail.assign(m.texts.begin() + kFixed, m.texts.end());
  return f;
}

std::optional<Failure> root_cause(const std::vector<Failure>& failures) {
  const auto first =
      std::min_element(failures.begin(), failures.end(), [](const Failure& a, const Failure& b) {
        if (is_witness(a) != is_witness(b)) return is_witness(b);
        return a.when_us != b.when_us ? a.when_us < b.when_us : a.rank < b.rank;
      });
  if (first == failures.end()) return {};
  return *first;
}

std::string describe(const Failure& f, int nodes) {
  std::string out = fmt::format("rank {} failed first: {}\n", f.rank, f.end.describe());
  out += fmt::format("  when   {} ({:.1f} s after the start)\n", local_time(f.when_us),
                     static_cast<double>(f.after_us) / 1e6);
  out +=
      fmt::format("  where  {}{}, local rank {}, pid {}\n",
                  nodes > 1 ? fmt::format("node {}, ", f.node) : "", f.host, f.local_rank, f.pid);
  if (!f.hint.empty()) out += fmt::format("  why    {}\n", f.hint);
  if (!f.log.empty()) out += fmt::format("  log    {}\n", f.log);
  if (f.tail.empty()) return out + "  it printed nothing";
  out += "  its last output:";
  for (const std::string& line : f.tail) out += fmt::format("\n    {}", line);
  return out;
}

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
    return "killed by another process, or by the kernel for lack of memory: see 'dmesg'";
  ++seen_;
  const std::string most = limit();
  return "the kernel killed it for lack of memory: its control group" +
         (most.empty() ? " or one above it has reached its limit" : " may have " + most) +
         "; fewer ranks, a smaller batch, or a higher limit help";
}

}  // namespace ringsmith::launch
