// Which all-reduce is the fastest at which size, by the cost model: latency decides for small
// messages, bytes on the slowest link for large ones, and where the two meet depends on the
// machine.
//
//     4 nodes of 8      double_tree            | halving_doubling      | hierarchical
//                       few steps              | few steps, few bytes  | fewest bytes on the wire
//                       ----------------------------------------------------------------> bytes
//
// The choice changes the order of sums, and so their last bits: the group makes it only when asked.
#pragma once

#include "runtime/comm/analysis/cost.hpp"

namespace ringsmith::comm {

struct SizedChoice {
  double up_to = 0;  // bytes, inclusive; the last one holds for all above it, too
  std::string algorithm;
  double seconds = 0;  // predicted, at up_to
  bool operator==(const SizedChoice&) const = default;
};

// The candidates: every all-reduce that ranks may be told to run (process_group.hpp's Algorithm).
[[nodiscard]] const std::vector<std::string>& choosable_algorithms();

// The fastest for each range of sizes, in increasing order; neighbours differ. Sizes are tried in
// powers of four from 256 bytes to 256 MiB. World >= 1.
[[nodiscard]] std::vector<SizedChoice> fastest_by_size(const CostModel& model, int world,
                                                       const std::vector<int>& node_of);

// Of choices that are not empty.
[[nodiscard]] const SizedChoice& choice_for(const std::vector<SizedChoice>& choices, double bytes);

}  // namespace ringsmith::comm
