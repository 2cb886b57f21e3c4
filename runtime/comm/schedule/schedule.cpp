#include "runtime/comm/schedule/schedule.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

namespace {

// Returns the end of the block of steps, starting at `begin`, whose chunks may be interleaved.
std::size_t end_of_block(const std::vector<Step>& steps, std::size_t begin) {
  std::size_t end = begin + 1;
  const int n = steps[begin].chunks;
  const auto may_join = [&](const Step& next) {
    if (n == 1 || next.chunks != n) return false;
    // Steps of different kinds must not be interleaved, because one may receive a reply that the
    // peer sends only after the other step's whole message.
    if (next.sends() != steps[begin].sends() || next.receives() != steps[begin].receives())
      return false;
    for (std::size_t s = begin; s < end; ++s) {
      const Step& earlier = steps[s];
      if (next.sends() && next.send_peer == earlier.send_peer) return false;
      if (next.receives() && next.recv_peer == earlier.recv_peer) return false;
      const auto apart = [n](int a, int b) { return std::abs(a - b) >= n; };
      const auto apart_or_same = [&](int a, int b) { return a == b || apart(a, b); };
      if (next.sends() && earlier.receives() && !apart(next.send_chunk, earlier.recv_chunk))
        return false;
      if (next.receives() && earlier.sends() && !apart_or_same(next.recv_chunk, earlier.send_chunk))
        return false;
      if (next.receives() && earlier.receives() &&
          !apart_or_same(next.recv_chunk, earlier.recv_chunk))
        return false;
    }
    return true;
  };
  while (end < steps.size() && may_join(steps[end])) ++end;
  return end;
}

}  // namespace

Schedule one_chunk_steps(const Schedule& schedule) {
  Schedule flat = schedule;
  for (std::size_t rank = 0; rank < schedule.steps.size(); ++rank) {
    const std::vector<Step>& steps = schedule.steps[rank];
    std::vector<Step>& out = flat.steps[rank];
    out.clear();
    for (std::size_t begin = 0, end = 0; begin < steps.size(); begin = end) {
      end = end_of_block(steps, begin);
      for (int i = 0; i < steps[begin].chunks; ++i)
        for (std::size_t s = begin; s < end; ++s) {
          Step one = steps[s];
          one.send_chunk += i;
          one.recv_chunk += i;
          one.chunks = 1;
          out.push_back(one);
        }
    }
  }
  return flat;
}

std::size_t message_count(const Schedule& schedule, int first_chunk, int chunks) {
  std::size_t elements = 0;
  for (int i = 0; i < chunks; ++i)
    elements +=
        schedule.chunks.at(static_cast<std::size_t>(first_chunk) + static_cast<std::size_t>(i))
            .count;
  return elements;
}

void check_world(int world, int root) {
  require(world >= 1, "world " + std::to_string(world) + ": a schedule needs at least one rank");
  require(root >= 0 && root < world, "root " + std::to_string(root) +
                                         " is not a rank of a world of " + std::to_string(world) +
                                         ": choose 0 to " + std::to_string(world - 1));
}

Schedule empty_schedule(Algorithm algorithm, Collective collective, int world, std::size_t count,
                        int chunks, int root) {
  check_world(world, root);
  Schedule schedule;
  schedule.algorithm = algorithm;
  schedule.collective = collective;
  schedule.world = world;
  schedule.root = root;
  schedule.count = count;
  schedule.chunks = split_evenly(count, chunks);
  schedule.steps.resize(static_cast<std::size_t>(world));
  return schedule;
}

std::vector<Chunk> split_evenly(std::size_t count, int parts) {
  const auto n = static_cast<std::size_t>(parts);
  std::vector<Chunk> chunks(n);
  std::size_t offset = 0;
  for (std::size_t i = 0; i < n; ++i) {
    chunks[i] = {offset, count / n + (i < count % n ? 1 : 0)};
    offset += chunks[i].count;
  }
  return chunks;
}

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
