#include "runtime/comm/schedule/hierarchical.hpp"

#include <algorithm>

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

}  // namespace

Schedule hierarchical_all_reduce(int world, std::size_t count, const std::vector<int>& node_of) {
  check_world(world);
  return Builder(world, count, node_of).build();
}

}  // namespace ringsmith::comm
