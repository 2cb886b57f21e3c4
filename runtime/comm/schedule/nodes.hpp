// Which ranks share a node: where the cheap links are.
//
//     node_of {0, 0, 0, 0, 1, 1, 1, 1}      [0 1 2 3] ===== wire ===== [4 5 6 7]
//
// A node's number says nothing but "the same" or "another"; an empty list means one node.
#pragma once

#include <vector>

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

// [node][rank on it], ranks in order, nodes in the order of their first rank. UsageError if the
// list has not one entry for each rank.
[[nodiscard]] std::vector<std::vector<int>> ranks_of_nodes(const std::vector<int>& node_of,
                                                           int world);

// Ranks 0..k-1 on node 0, the next k on node 1, and so on; the last node may have fewer.
// UsageError unless ranks_per_node >= 1.
[[nodiscard]] std::vector<int> nodes_of(int world, int ranks_per_node);

// Ranks of the busiest node that send to another node.
[[nodiscard]] int senders_per_node(const Schedule& schedule, const std::vector<int>& node_of);

}  // namespace ringsmith::comm
