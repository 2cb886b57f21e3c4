#include "runtime/comm/schedule/nodes.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

std::vector<std::vector<int>> ranks_of_nodes(const std::vector<int>& node_of, int world) {
  require(node_of.empty() || node_of.size() == static_cast<std::size_t>(world),
          "a list of nodes for " + std::to_string(node_of.size()) +
              " ranks does not fit a world of " + std::to_string(world));
  std::vector<std::vector<int>> nodes;
  std::map<int, std::size_t> known;
  for (int rank = 0; rank < world; ++rank) {
    const int number = node_of.empty() ? 0 : node_of[static_cast<std::size_t>(rank)];
    const auto [entry, fresh] = known.try_emplace(number, nodes.size());
    if (fresh) nodes.emplace_back();
    nodes[entry->second].push_back(rank);
  }
  return nodes;
}

std::vector<int> nodes_of(int world, int ranks_per_node) {
  require(ranks_per_node >= 1,
          std::to_string(ranks_per_node) + " ranks per node: a node has at least one");
  std::vector<int> node_of;
  node_of.reserve(static_cast<std::size_t>(std::max(world, 0)));
  for (int rank = 0; rank < world; ++rank) node_of.push_back(rank / ranks_per_node);
  return node_of;
}

int senders_per_node(const Schedule& schedule, const std::vector<int>& node_of) {
  std::map<int, int> senders;
  int most = 0;
  for (std::size_t rank = 0; rank < schedule.steps.size(); ++rank) {
    const bool sends =
        std::any_of(schedule.steps[rank].begin(), schedule.steps[rank].end(), [&](const Step& s) {
          return s.sends() && node_of[static_cast<std::size_t>(s.send_peer)] != node_of[rank];
        });
    if (sends) most = std::max(most, ++senders[node_of[rank]]);
  }
  return most;
}

}  // namespace ringsmith::comm
