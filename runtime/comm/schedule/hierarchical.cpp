#include "runtime/comm/schedule/hierarchical.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/ring.hpp"
#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

namespace {

class Builder {
 public:
  Builder(int world, std::size_t count, const std::vector<int>& node_of)
      : nodes_(ranks_of_nodes(node_of, world)), n_(static_cast<int>(nodes_.size())), m_(world) {
    for (const auto& node : nodes_) m_ = std::min(m_, static_cast<int>(node.size()));
    schedule_ = empty_schedule(Algorithm::hierarchical, Collective::all_reduce, world, count,
                               n_ * m_);  // part l of the buffer: n chunks from l n on
    schedule_.node_of = node_of;
  }

  Schedule build() {
    for (int node = 0; node < n_; ++node) {
      fold(node, Action::reduce);
      for (int local = 0; local < m_; ++local) {
        reduce_scatter(node, local);
        ring(node, local);
        all_gather(node, local);
      }
      fold(node, Action::copy);
    }
    return std::move(schedule_);
  }

 private:
  [[nodiscard]] int rank(int node, int local) const {
    return nodes_[static_cast<std::size_t>(node)][static_cast<std::size_t>(local)];
  }

  // Adds the steps of a node's ranks beyond the first m: they send their whole buffer at the start
  // (reduce) and receive the sum at the end (copy).
  void fold(int node, Action action) {
    const int size = static_cast<int>(nodes_[static_cast<std::size_t>(node)].size());
    const int all = n_ * m_;
    for (int beyond = m_; beyond < size; ++beyond) {
      const int outer = rank(node, beyond), inner = rank(node, beyond % m_);
      const bool in = action == Action::reduce;
      schedule_.add(in ? outer : inner, {in ? inner : outer, 0, kNobody, 0, Action::copy, all});
      schedule_.add(in ? inner : outer, {kNobody, 0, in ? outer : inner, 0, action, all});
    }
  }

  void reduce_scatter(int node, int local) {
    for (int s = 0; s < m_ - 1; ++s) {
      const int to = wrap(local - 1 - s, m_), from = wrap(local + 1 + s, m_);
      schedule_.add(rank(node, local),
                    {rank(node, to), to * n_, rank(node, from), local * n_, Action::reduce, n_});
    }
  }

  void ring(int node, int local) {
    for (int s = 0; s < 2 * (n_ - 1); ++s) {
      Step step = ring_all_reduce_step(n_, node, s);
      step.send_peer = rank(step.send_peer, local);
      step.recv_peer = rank(step.recv_peer, local);
      step.send_chunk += local * n_;
      step.recv_chunk += local * n_;
      schedule_.add(rank(node, local), step);
    }
  }

  void all_gather(int node, int local) {
    for (int s = 0; s < m_ - 1; ++s) {
      const int to = wrap(local - 1 - s, m_), from = wrap(local + 1 + s, m_);
      schedule_.add(rank(node, local),
                    {rank(node, to), local * n_, rank(node, from), from * n_, Action::copy, n_});
    }
  }

  std::vector<std::vector<int>> nodes_;
  int n_, m_;  // number of nodes; ranks per node that own a part
  Schedule schedule_;
};

// Renames the peers and chunks of a ring's step: member i is ranks[i], and the ring's chunk c
// consists of `chunks` chunks from first + c chunks on.
Step on_ranks(Step step, const std::vector<int>& ranks, int first, int chunks) {
  step.send_peer = ranks[at(step.send_peer)];
  step.recv_peer = ranks[at(step.recv_peer)];
  step.send_chunk = first + step.send_chunk * chunks;
  step.recv_chunk = first + step.recv_chunk * chunks;
  step.chunks = chunks;
  return step;
}

std::vector<std::vector<int>> equal_nodes(const std::vector<int>& node_of, int world) {
  auto nodes = ranks_of_nodes(node_of, world);
  for (const auto& node : nodes)
    require(node.size() == nodes[0].size(),
            "the hierarchical schedule for GPUs needs nodes of equal size, but one has " +
                std::to_string(nodes[0].size()) + " ranks and another one " +
                std::to_string(node.size()));
  return nodes;
}

// Returns the ranks with this local rank, by node.
std::vector<int> ranks_across(const std::vector<std::vector<int>>& nodes, std::size_t local) {
  std::vector<int> ranks;
  ranks.reserve(nodes.size());
  for (const auto& node : nodes) ranks.push_back(node[local]);
  return ranks;
}

// Adds the steps of member a of the ring `ranks`, whose chunks start at index `first`.
void add_ring(Schedule& schedule, const std::vector<int>& ranks, int a, int first) {
  const int n = static_cast<int>(ranks.size());
  for (int s = 0; s < 2 * (n - 1); ++s)
    schedule.add(ranks[at(a)], on_ranks(ring_all_reduce_step(n, a, s), ranks, first, 1));
}

}  // namespace

Schedule hierarchical_all_reduce(int world, std::size_t count, const std::vector<int>& node_of) {
  check_world(world);
  return Builder(world, count, node_of).build();
}

Chunk NodePiece::part_of(int local, std::size_t count) const {
  const std::size_t begin = std::min(offset + at(local) * part, count);
  return {begin, std::min(part, count - begin)};
}

std::vector<NodePiece> node_pieces(std::size_t count, int m, std::size_t most) {
  std::vector<NodePiece> pieces;
  std::size_t offset = 0;
  while (offset < count) {
    const std::size_t part = std::clamp<std::size_t>((count - offset) / at(m), 1, most);
    pieces.push_back({offset, part});
    offset += at(m) * part;
  }
  return pieces;
}

Schedule hierarchical_in_pieces(int world, std::size_t count, const std::vector<int>& node_of,
                                std::size_t most) {
  check_world(world);
  const auto nodes = equal_nodes(node_of, world);
  const int n = static_cast<int>(nodes.size()), m = static_cast<int>(nodes[0].size());
  const auto pieces = node_pieces(count, m, most);
  Schedule schedule = empty_schedule(Algorithm::hierarchical, Collective::all_reduce, world, 0, 1);
  schedule.count = count;
  schedule.node_of = node_of;
  schedule.chunks.clear();
  for (const NodePiece& piece : pieces)
    for (int local = 0; local < m; ++local) {
      const Chunk part = piece.part_of(local, count);
      for (const Chunk& chunk : split_evenly(part.count, n))
        schedule.chunks.push_back({part.offset + chunk.offset, chunk.count});
    }
  if (pieces.empty()) schedule.chunks.push_back({});
  for (int a = 0; a < n; ++a)
    for (int l = 0; l < m; ++l) {
      const std::vector<int>& node = nodes[at(a)];
      const auto within = [&](std::size_t piece, auto step_of) {
        for (int s = 0; s < m - 1; ++s)
          schedule.add(node[at(l)],
                       on_ranks(step_of(m, l, s, +1), node, static_cast<int>(piece) * m * n, n));
      };
      for (std::size_t p = 0; p < pieces.size(); ++p) {
        if (p == 0) within(p, ring_reduce_scatter_step);
        if (p + 1 < pieces.size()) within(p + 1, ring_reduce_scatter_step);
        add_ring(schedule, ranks_across(nodes, at(l)), a, (static_cast<int>(p) * m + l) * n);
        within(p, ring_all_gather_step);
      }
    }
  return schedule;
}

Schedule ring_between_nodes(int world, std::size_t count, const std::vector<int>& node_of) {
  check_world(world);
  const auto nodes = equal_nodes(node_of, world);
  const int n = static_cast<int>(nodes.size());
  Schedule schedule =
      empty_schedule(Algorithm::hierarchical, Collective::all_reduce, world, count, n);
  schedule.node_of = node_of;
  for (std::size_t local = 0; local < nodes[0].size(); ++local)
    for (int a = 0; a < n; ++a) add_ring(schedule, ranks_across(nodes, local), a, 0);
  return schedule;
}

}  // namespace ringsmith::comm
