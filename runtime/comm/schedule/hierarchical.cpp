#include "runtime/comm/schedule/hierarchical.hpp"

#include <algorithm>
#include <numeric>
#include <set>

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

// Adds the steps of member a of the ring `ranks`, whose chunks start at index `first`.
void add_ring(Schedule& schedule, const std::vector<int>& ranks, int a, int first) {
  const int n = static_cast<int>(ranks.size());
  for (int s = 0; s < 2 * (n - 1); ++s) {
    Step step = ring_all_reduce_step(n, a, s);
    step.send_peer = ranks[at(step.send_peer)];
    step.recv_peer = ranks[at(step.recv_peer)];
    step.send_chunk += first;
    step.recv_chunk += first;
    schedule.add(ranks[at(a)], step);
  }
}

}  // namespace

Schedule hierarchical_all_reduce(int world, std::size_t count, const std::vector<int>& node_of) {
  check_world(world);
  return Builder(world, count, node_of).build();
}

std::size_t NodeShares::longest_unit(std::size_t most) const {
  const std::size_t unit = std::max<std::size_t>(most / at(largest_part), 1);
  return unit < kEvenUnit ? unit : unit / kEvenUnit * kEvenUnit;
}

NodeShares shares_of_nodes(const std::vector<std::vector<int>>& nodes) {
  NodeShares shares;
  for (const auto& node : nodes)
    shares.units = std::lcm(shares.units, static_cast<int>(node.size()));
  std::set<int> borders{shares.units};
  for (const auto& node : nodes) {
    const int part = shares.units / static_cast<int>(node.size());
    shares.largest_part = std::max(shares.largest_part, part);
    for (int begin = part; begin < shares.units; begin += part) borders.insert(begin);
  }
  int begin = 0;
  for (const int end : borders) {
    NodeSegment segment{begin, end, {}};
    for (const auto& node : nodes)
      segment.owners.push_back(node[at(begin) * node.size() / at(shares.units)]);
    shares.segments.push_back(std::move(segment));
    begin = end;
  }
  return shares;
}

Chunk NodePiece::part_of(int begin, int end, std::size_t count) const {
  const std::size_t first = std::min(offset + at(begin) * unit, count);
  return {first, std::min(offset + at(end) * unit, count) - first};
}

std::vector<NodePiece> node_pieces(std::size_t count, int units, std::size_t most) {
  std::vector<NodePiece> pieces;
  std::size_t offset = 0;
  while (offset < count) {
    const std::size_t unit = std::clamp<std::size_t>((count - offset) / at(units), 1, most);
    pieces.push_back({offset, unit});
    offset += at(units) * unit;
  }
  return pieces;
}

namespace {

// Adds the steps of a piece within a node.
class WithinNode {
 public:
  // The chunks of a segment are n consecutive ones, from n times its number on.
  WithinNode(Schedule& schedule, const std::vector<int>& node, const NodeShares& shares)
      : schedule_(schedule), node_(node), n_(static_cast<int>(shares.segments[0].owners.size())) {
    const int part = shares.units / size();
    for (int s = 0; s < static_cast<int>(shares.segments.size()); ++s)
      if (shares.segments[at(s)].begin % part == 0) first_.push_back(s);
    first_.push_back(static_cast<int>(shares.segments.size()));
  }

  // Adds the steps of local rank l in a ring whose chunks are the parts of the piece. A step of the
  // ring becomes a step for each segment of a part, because parts have different numbers of them.
  template <class StepOf>
  void add(int l, std::size_t piece, StepOf step_of) {
    const int before = static_cast<int>(piece) * first_.back();
    for (int s = 0; s < size() - 1; ++s) {
      const Step ring = step_of(size(), l, s, +1);
      const int sent = segments_of(ring.send_chunk), received = segments_of(ring.recv_chunk);
      for (int i = 0; i < std::max(sent, received); ++i) {
        Step step{kNobody, 0, kNobody, 0, Action::copy, n_};
        if (i < sent) {
          step.send_peer = node_[at(ring.send_peer)];
          step.send_chunk = (before + first_[at(ring.send_chunk)] + i) * n_;
        }
        if (i < received) {
          step.recv_peer = node_[at(ring.recv_peer)];
          step.recv_chunk = (before + first_[at(ring.recv_chunk)] + i) * n_;
          step.action = ring.action;
        }
        schedule_.add(node_[at(l)], step);
      }
    }
  }

 private:
  [[nodiscard]] int size() const { return static_cast<int>(node_.size()); }
  [[nodiscard]] int segments_of(int part) const { return first_[at(part + 1)] - first_[at(part)]; }

  Schedule& schedule_;
  const std::vector<int>& node_;
  int n_;
  std::vector<int> first_;  // the first segment of each part, and the number of segments
};

}  // namespace

Schedule hierarchical_in_pieces(int world, std::size_t count, const std::vector<int>& node_of,
                                std::size_t most) {
  check_world(world);
  const auto nodes = ranks_of_nodes(node_of, world);
  const NodeShares shares = shares_of_nodes(nodes);
  const int n = static_cast<int>(nodes.size()), segments = static_cast<int>(shares.segments.size());
  const auto pieces = node_pieces(count, shares.units, shares.longest_unit(most));
  Schedule schedule = empty_schedule(Algorithm::hierarchical, Collective::all_reduce, world, 0, 1);
  schedule.count = count;
  schedule.node_of = node_of;
  schedule.chunks.clear();
  for (const NodePiece& piece : pieces)
    for (const NodeSegment& segment : shares.segments) {
      const Chunk part = piece.part_of(segment.begin, segment.end, count);
      for (const Chunk& chunk : split_evenly(part.count, n))
        schedule.chunks.push_back({part.offset + chunk.offset, chunk.count});
    }
  if (pieces.empty()) schedule.chunks.push_back({});
  for (int a = 0; a < n; ++a) {
    WithinNode within(schedule, nodes[at(a)], shares);
    for (int l = 0; l < static_cast<int>(nodes[at(a)].size()); ++l)
      for (std::size_t p = 0; p < pieces.size(); ++p) {
        if (p == 0) within.add(l, p, ring_reduce_scatter_step);
        if (p + 1 < pieces.size()) within.add(l, p + 1, ring_reduce_scatter_step);
        for (int s = 0; s < segments; ++s)
          if (const auto& owners = shares.segments[at(s)].owners;
              owners[at(a)] == nodes[at(a)][at(l)])
            add_ring(schedule, owners, a, (static_cast<int>(p) * segments + s) * n);
        within.add(l, p, ring_all_gather_step);
      }
  }
  return schedule;
}

Schedule ring_between_nodes(int world, std::size_t count, const std::vector<int>& node_of,
                            const NodeSegment& segment) {
  check_world(world);
  const int n = static_cast<int>(segment.owners.size());
  Schedule schedule =
      empty_schedule(Algorithm::hierarchical, Collective::all_reduce, world, count, n);
  schedule.node_of = node_of;
  for (int a = 0; a < n; ++a) add_ring(schedule, segment.owners, a, 0);
  return schedule;
}

}  // namespace ringsmith::comm
