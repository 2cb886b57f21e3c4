#include "runtime/comm/analysis/promise.hpp"

#include <algorithm>

#include "runtime/comm/schedule/halving.hpp"
#include "runtime/comm/schedule/schedule.hpp"
#include "runtime/comm/schedule/tree.hpp"

namespace ringsmith::comm {

namespace {

// Every rank r sends all of the buffer but chunk r + shift.
void add_all_but_one(std::vector<std::size_t>& sent, const Schedule& schedule, int shift) {
  for (int rank = 0; rank < schedule.world; ++rank)
    sent[static_cast<std::size_t>(rank)] +=
        schedule.count -
        schedule.chunks.at(static_cast<std::size_t>(wrap(rank + shift, schedule.world))).count;
}

// Every rank sends its own chunk to every other one.
void add_own_to_all(std::vector<std::size_t>& sent, const Schedule& schedule) {
  for (std::size_t rank = 0; rank < sent.size(); ++rank)
    sent[rank] += (sent.size() - 1) * schedule.chunks.at(rank).count;
}

Promise from(int steps, const std::vector<std::size_t>& sent) {
  Promise promise{steps, 0, 0};
  for (const std::size_t elements : sent) {
    promise.busiest = std::max(promise.busiest, elements);
    promise.total += elements;
  }
  return promise;
}

// hierarchical.hpp's table, and the whole buffer once each way for a rank beyond the first m.
Promise hierarchical_cost(const Schedule& schedule) {
  const auto nodes = ranks_of_nodes(schedule.node_of, schedule.world);
  const int n = static_cast<int>(nodes.size());
  std::size_t m = nodes[0].size(), most = 0;
  for (const auto& node : nodes) m = std::min(m, node.size()), most = std::max(most, node.size());
  std::vector<std::size_t> sent(static_cast<std::size_t>(schedule.world), 0);
  for (int a = 0; a < n; ++a) {
    const auto& node = nodes[static_cast<std::size_t>(a)];
    for (std::size_t l = 0; l < node.size(); ++l) {
      std::size_t& mine = sent[static_cast<std::size_t>(node[l])];
      if (l >= m) {
        mine = schedule.count;
        continue;
      }
      const int first = static_cast<int>(l) * n;
      const std::size_t part = message_count(schedule, first, n);
      mine = schedule.count - part + (m - 1) * part;
      if (n > 1)
        mine += 2 * part - message_count(schedule, first + a, 1) -
                message_count(schedule, first + (a + 1) % n, 1);
      mine += (node.size() - 1 - l) / m * schedule.count;
    }
  }
  const int folds = static_cast<int>((most - 1) / m);  // NOLINT(*-DivideZero): none is empty
  return from(2 * static_cast<int>(m - 1) + 2 * (n - 1) + 2 * folds, sent);
}

Promise halving_cost(const Schedule& schedule) {
  const int p = halving_core(schedule.world), beyond = schedule.world - p;
  std::vector<std::size_t> sent(static_cast<std::size_t>(schedule.world), schedule.count);
  for (int rank = 0; rank < p; ++rank) {
    std::size_t& mine = sent[static_cast<std::size_t>(rank)];
    mine = (rank < beyond ? 2 : 1) * schedule.count - message_count(schedule, rank, 1);
    for (int held = 1; held < p; held *= 2)
      mine += message_count(schedule, rank / held * held, held);
  }
  return from(2 * tree_rounds(p) + (beyond > 0 ? 2 : 0), sent);
}

Promise double_tree_cost(const Schedule& schedule) {
  const int pieces = static_cast<int>(schedule.chunks.size()) / 2;
  std::vector<std::size_t> sent(static_cast<std::size_t>(schedule.world), 0);
  int neighbours = 0;
  for (int rank = 0; rank < schedule.world; ++rank) {
    int mine = 0;
    for (const int tree : {0, 1}) {
      const int degree = double_tree_node(schedule.world, rank, tree).degree();
      mine += degree;
      sent[static_cast<std::size_t>(rank)] +=
          static_cast<std::size_t>(degree) * message_count(schedule, tree * pieces, pieces);
    }
    neighbours = std::max(neighbours, mine);
  }
  return from(2 * pieces * neighbours, sent);
}

}  // namespace

std::optional<Promise> promised_cost(const Schedule& schedule) {
  const std::string& algorithm = schedule.algorithm;
  const int world = schedule.world, hops = world - 1;
  const auto ranks = static_cast<std::size_t>(world),
             root = static_cast<std::size_t>(schedule.root);
  const std::size_t count = schedule.count;
  const bool ring = algorithm == "ring", gloo = algorithm == "gloo_ring";
  const bool direct = algorithm == "direct", tree = algorithm == "tree";
  const auto rounds = static_cast<std::size_t>(tree_rounds(world));
  std::vector<std::size_t> sent(ranks, 0);  // elements, of each rank
  int steps = hops;
  switch (schedule.collective) {
    case Collective::all_reduce:
      if (ring || gloo) {
        steps = 2 * hops;
        add_all_but_one(sent, schedule, 0);
        add_all_but_one(sent, schedule, ring ? +1 : -1);
      } else if (algorithm == "direct") {
        steps = 2 * hops;
        add_all_but_one(sent, schedule, 0);
        add_own_to_all(sent, schedule);
      } else if (algorithm == "one_shot") {
        return Promise{2 * hops + 1, (ranks - 1) * count, ranks * (ranks - 1) * count};
      } else if (tree) {
        return Promise{2 * static_cast<int>(rounds), rounds * count, 2 * (ranks - 1) * count};
      } else if (algorithm == "hierarchical") {
        return hierarchical_cost(schedule);
      } else if (algorithm == "halving_doubling") {
        return halving_cost(schedule);
      } else if (algorithm == "double_tree") {
        return double_tree_cost(schedule);
      } else {
        return std::nullopt;
      }
      break;
    case Collective::reduce_scatter:
      if (!ring && !direct) return std::nullopt;
      add_all_but_one(sent, schedule, 0);
      break;
    case Collective::all_gather:
      if (ring)
        add_all_but_one(sent, schedule, +1);
      else if (direct)
        add_own_to_all(sent, schedule);
      else
        return std::nullopt;
      break;
    case Collective::broadcast:
      if (tree) return Promise{static_cast<int>(rounds), rounds * count, (ranks - 1) * count};
      if (!direct) return std::nullopt;
      sent[root] = (ranks - 1) * count;
      break;
    case Collective::reduce:
      if (tree)
        return Promise{static_cast<int>(rounds), world > 1 ? count : 0, (ranks - 1) * count};
      if (!direct) return std::nullopt;
      sent.assign(ranks, count);
      sent[root] = 0;
      break;
    case Collective::gather:
      if (!direct) return std::nullopt;
      for (std::size_t rank = 0; rank < ranks; ++rank) sent[rank] = schedule.chunks.at(rank).count;
      sent[root] = 0;
      break;
    case Collective::scatter:
      if (!direct) return std::nullopt;
      sent[root] = count - schedule.chunks.at(root).count;
      break;
    case Collective::all_to_all:
      if (!direct) return std::nullopt;
      steps = world;
      add_all_but_one(sent, schedule, 0);
      break;
    default:
      return std::nullopt;
  }
  return from(steps, sent);
}

Promise counted_cost(const Schedule& schedule) {
  Promise cost;
  for (const auto& steps : schedule.steps) {
    std::size_t sent = 0;
    for (const Step& step : steps)
      if (step.sends()) sent += message_count(schedule, step.send_chunk, step.chunks);
    cost.steps = std::max(cost.steps, static_cast<int>(steps.size()));
    cost.busiest = std::max(cost.busiest, sent);
    cost.total += sent;
  }
  return cost;
}

}  // namespace ringsmith::comm
