// What doctor says: a fact, how good it is, and what to do about it.
//
//   ok    cores       2, all for this process
//   warn  memlock     8 MiB: RDMA registers more than that
//                     remedy: ulimit -l unlimited
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/comm/process_group.hpp"

namespace ringsmith::apps {

struct Finding {
  // note: something is not there that is not needed; warn: it will be slow or limited; fail: what
  // was asked for does not work.
  enum class Verdict : std::uint8_t { ok, note, warn, fail };
  Verdict verdict = Verdict::ok;
  std::string subject;
  std::string fact;
  std::string remedy = {};  // empty for ok
};

using Findings = std::vector<Finding>;

// Lines of at most `width` characters, each with its newline.
[[nodiscard]] std::string render(const Findings& findings, std::size_t width);
[[nodiscard]] Finding::Verdict worst_of(const Findings& findings);

// What this machine has, and what it lets a job do. Nothing is changed; takes a few milliseconds.
[[nodiscard]] Findings examine_machine();
// Of these: how many addresses a process may reserve (RLIMIT_AS, RLIM_INFINITY: any number).
[[nodiscard]] Finding judge_address_limit(std::uint64_t bytes);

// Has the kernel found an RDMA device?
[[nodiscard]] bool has_rdma();

// A launched job: how each pair of ranks is connected, why not better, what the connection takes.
struct JobReport {
  std::string table;  // a line for each pair
  Findings findings;
};
// Collective; what it returns is for rank 0. Between every two ranks (of a large job: the first
// kMostPairs) a message goes to and fro, one pair at a time.
constexpr int kMostPairs = 66;  // 12 ranks
[[nodiscard]] JobReport examine_job(comm::ProcessGroup& group, std::size_t width);

}  // namespace ringsmith::apps
