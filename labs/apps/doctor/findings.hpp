// The findings of doctor: a fact, a verdict on it, and a remedy.
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
  // note: something optional is missing; warn: the job will be slow or limited; fail: a requested
  // feature does not work.
  enum class Verdict : std::uint8_t { ok, note, warn, fail };
  Verdict verdict = Verdict::ok;
  std::string subject;
  std::string fact;
  std::string remedy = {};  // empty for ok
};

using Findings = std::vector<Finding>;

// Renders the findings as lines of at most `width` characters, each ending with a newline.
[[nodiscard]] std::string render(const Findings& findings, std::size_t width);
[[nodiscard]] Finding::Verdict worst_of(const Findings& findings);

// Examines this machine and its limits for a job. Changes nothing; takes a few milliseconds.
[[nodiscard]] Findings examine_machine();
// Returns the finding about the address space that a process may reserve (RLIMIT_AS; RLIM_INFINITY:
// no limit).
[[nodiscard]] Finding judge_address_limit(std::uint64_t bytes);

// True if the kernel has found an RDMA device.
[[nodiscard]] bool has_rdma();

// The report on a launched job: for each pair of ranks, its transport, the reason why no faster one
// is used, and the cost of a message.
struct JobReport {
  std::string table;  // one line per pair
  Findings findings;
};
// Collective; returns the same report on every rank. Each pair of ranks (in a large job: each of
// the first kMostPairs pairs) sends a message back and forth, one pair at a time.
constexpr int kMostPairs = 66;  // all pairs of 12 ranks
[[nodiscard]] JobReport examine_job(comm::ProcessGroup& group, std::size_t width);

}  // namespace ringsmith::apps
