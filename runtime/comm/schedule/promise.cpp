#include "runtime/comm/schedule/promise.hpp"

#include <algorithm>

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
      } else if (algorithm == "two_shot") {
        steps = 2 * hops;
        add_all_but_one(sent, schedule, 0);
        add_own_to_all(sent, schedule);
      } else if (algorithm == "one_shot") {
        return Promise{2 * hops + 1, (ranks - 1) * count, ranks * (ranks - 1) * count};
      } else if (tree) {
        return Promise{2 * static_cast<int>(rounds), rounds * count, 2 * (ranks - 1) * count};
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
  }
  Promise promise{steps, 0, 0};
  for (const std::size_t elements : sent) {
    promise.busiest = std::max(promise.busiest, elements);
    promise.total += elements;
  }
  return promise;
}

Promise counted_cost(const Schedule& schedule) {
  Promise cost;
  for (const auto& steps : schedule.steps) {
    std::size_t sent = 0;
    for (const Step& step : steps)
      if (step.sends()) sent += schedule.chunks.at(static_cast<std::size_t>(step.send_chunk)).count;
    cost.steps = std::max(cost.steps, static_cast<int>(steps.size()));
    cost.busiest = std::max(cost.busiest, sent);
    cost.total += sent;
  }
  return cost;
}

}  // namespace ringsmith::comm
