// doctor's look at a launched job: how each pair of ranks is connected, why not better, and what
// the connection takes.
#pragma once

#include <string>

#include "labs/apps/common/findings.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith::apps {

struct JobReport {
  std::string table;  // a line for each pair
  Findings findings;
};

// Collective; what it returns is for rank 0. Between every two ranks (of a large job: the first
// kMostPairs) a message goes to and fro, one pair at a time.
constexpr int kMostPairs = 66;  // 12 ranks
[[nodiscard]] JobReport examine_job(comm::ProcessGroup& group, std::size_t width);

}  // namespace ringsmith::apps
