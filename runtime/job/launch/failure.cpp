#include "runtime/job/launch/failure.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/chrono.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

namespace ringsmith::launch {

namespace {

bool is_witness(const Failure& f) {
  return !f.end.signalled && (f.end.code == static_cast<int>(ExitCode::communication) ||
                              f.end.code == static_cast<int>(ExitCode::timeout));
}

std::string local_time(std::int64_t us) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}.{:03}", fmt::localtime(us / 1'000'000),
                     us / 1000 % 1000);
}

constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;  // in version 1, larger means no limit

std::string whole_file(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The number that follows `word`; -1 if there is none.
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

std::string ExitStatus::describe() const {
  if (!signalled) return fmt::format("exit code {}", code);
  return fmt::format("signal {} ({}){}", code, signal_name(code),
                     core_dumped ? ", core dumped" : "");
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ExitStatus, signalled, core_dumped, code)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Failure, rank, local_rank, node, host, pid, end, when_us,
                                   after_us, tail, log, hint, blames)

// CBOR, because a rank's output need not be valid UTF-8.
std::string Failure::encode() const {
  const auto bytes = nlohmann::json::to_cbor(*this);
  return {bytes.begin(), bytes.end()};
}

Failure Failure::decode(const std::string& text) try {
  return nlohmann::json::from_cbor(text).get<Failure>();
} catch (const nlohmann::json::exception&) {
  throw CommError(
      "cannot read another node's report of a failure: use the same ringrun on all nodes");
}

std::optional<Failure> root_cause(const std::vector<Failure>& failures) {
  const auto first = std::ranges::min_element(failures, [](const Failure& a, const Failure& b) {
    if (is_witness(a) != is_witness(b)) return is_witness(b);
    return a.when_us != b.when_us ? a.when_us < b.when_us : a.rank < b.rank;
  });
  if (first == failures.end()) return {};
  const Failure* cause = &*first;
  for (std::size_t hops = 0; is_witness(*cause) && hops < failures.size(); ++hops) {
    const auto next = std::ranges::find(failures, cause->blames, &Failure::rank);
    if (cause->blames < 0 || next == failures.end()) break;
    cause = &*next;
  }
  return *cause;
}

std::optional<Blamed> blamed_in(const std::vector<std::string>& tail, int own) {
  static const std::regex place(R"(rank (\d{1,6}) \(pid (\d{1,9}) on ([^ ()]+)\))");
  for (auto line = tail.rbegin(); line != tail.rend(); ++line) {
    const std::size_t verdict = line->find("To blame: ");
    const bool whole_job = line->find("in the group of ranks") == std::string::npos;
    const std::string words = verdict == std::string::npos ? *line : line->substr(verdict);
    for (std::sregex_iterator at(words.begin(), words.end(), place), end; at != end; ++at)
      if (const int pid = std::stoi(at->str(2)); pid != own)
        return Blamed{whole_job ? std::stoi(at->str(1)) : -1, pid, at->str(3)};
  }
  return {};
}

std::string describe(const Failure& f, int nodes) {
  std::string out = is_witness(f) && f.blames >= 0 && f.blames != f.rank
                        ? fmt::format("rank {} gave up because of rank {}: {}\n", f.rank, f.blames,
                                      f.end.describe())
                        : fmt::format("rank {} failed first: {}\n", f.rank, f.end.describe());
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

// The lines are "4:memory:/a/b" in version 1 and "0::/a/b" in version 2; some hosts have both.
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
         (most.empty() ? " or one above it has reached its limit" : " is limited to " + most) +
         "; use fewer ranks, a smaller batch, or a higher limit";
}

}  // namespace ringsmith::launch
