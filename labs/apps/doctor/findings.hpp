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
  // note: an optional feature is missing or restricted; warn: jobs will be slow or limited; fail: a
  // feature that jobs need does not work.
  enum class Verdict : std::uint8_t { ok, note, warn, fail };
  Verdict verdict = Verdict::ok;
  std::string subject;
  std::string fact;
  std::string remedy = {};  // empty for ok
};

using Findings = std::vector<Finding>;

[[nodiscard]] std::string render(const Findings& findings, std::size_t width);
[[nodiscard]] Finding::Verdict worst_of(const Findings& findings);

// Changes nothing on the machine.
[[nodiscard]] Findings examine_machine();
// bytes: RLIMIT_AS, or RLIM_INFINITY for no limit.
[[nodiscard]] Finding judge_address_limit(std::uint64_t bytes);

[[nodiscard]] bool has_rdma();

struct JobReport {
  std::string table;  // one line per measured pair, then reasons
  Findings findings;
};
// Collective. Returns the same report on every rank. The first kMostPairs pairs of ranks send
// messages back and forth, one pair at a time.
constexpr int kMostPairs = 66;  // all pairs of 12 ranks
[[nodiscard]] JobReport examine_job(comm::ProcessGroup& group, std::size_t width);

}  // namespace ringsmith::apps
