#include "runtime/analysis/cost.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/schedule.hpp"
#include "runtime/comm/schedule/select.hpp"
#include "runtime/comm/schedule/tree.hpp"

namespace ringsmith::comm {

Rate::Rate(std::vector<Point> points) : points_(std::move(points)) {
  require(!points_.empty(), "a rate needs at least one point");
  for (std::size_t i = 0; i < points_.size(); ++i) {
    require(points_[i].working_set > 0 && std::isfinite(points_[i].seconds_per_byte),
            "a rate's points need positive sizes and finite times");
    require(i == 0 || points_[i].working_set > points_[i - 1].working_set,
            "a rate's points must be in increasing order of working set");
  }
}

double Rate::at(double working_set) const {
  if (working_set <= points_.front().working_set) return points_.front().seconds_per_byte;
  for (std::size_t i = 1; i < points_.size(); ++i) {
    const Point &low = points_[i - 1], &high = points_[i];
    if (working_set > high.working_set) continue;
    const double share =
        std::log(working_set / low.working_set) / std::log(high.working_set / low.working_set);
    return low.seconds_per_byte + share * (high.seconds_per_byte - low.seconds_per_byte);
  }
  return points_.back().seconds_per_byte;
}

Network CostModel::network(double working_set, const std::vector<int>& node_of, int senders) const {
  const Link within{alpha, beta.at(working_set)};
  Network network = Network::uniform(within, gamma.at(working_set), overhead);
  if (!wire || node_of.empty()) return network;
  const Link between{wire->alpha, wire->beta.at(working_set) * std::max(1, senders)};
  network.link = [within, between, node_of](int from, int to) {
    return node_of[static_cast<std::size_t>(from)] == node_of[static_cast<std::size_t>(to)]
               ? within
               : between;
  };
  return network;
}

double predicted_time(const CostModel& model, const Schedule& schedule) {
  const int senders = schedule.node_of.empty() ? 1 : senders_per_node(schedule, schedule.node_of);
  const auto bytes = static_cast<double>(schedule.count);
  return simulate(schedule, 1, model.network(bytes, schedule.node_of, senders)).seconds;
}

CostShape shape_of(const Schedule& schedule) {
  const auto seconds = [&](Link link, double gamma) {
    return simulate(schedule, 1, Network::uniform(link, gamma)).seconds;
  };
  return {seconds({1, 0}, 0), seconds({0, 1}, 0), seconds({0, 0}, 1)};
}

double ring_half_time(int world, double bytes, Link link, double gamma) {
  const double chunk = bytes / world;
  return (world - 1) * (link.alpha + chunk * link.beta + chunk * gamma);
}

double ring_all_reduce_time(int world, double bytes, Link link, double gamma) {
  return ring_half_time(world, bytes, link, gamma) + ring_half_time(world, bytes, link, 0);
}

double tree_time(int world, double bytes, Link link, double gamma) {
  return tree_rounds(world) * (link.alpha + bytes * link.beta + bytes * gamma);
}

const std::vector<Algorithm>& choosable_algorithms() {
  static const std::vector<Algorithm> all = {Algorithm::ring,        Algorithm::direct,
                                             Algorithm::tree,        Algorithm::halving_doubling,
                                             Algorithm::double_tree, Algorithm::hierarchical};
  return all;
}

std::vector<SizedChoice> fastest_by_size(const CostModel& model, int world,
                                         const std::vector<int>& node_of) {
  constexpr std::size_t kSmallest = 256, kLargest = 256 * 1024 * 1024;
  const auto nodes = ranks_of_nodes(node_of, world);
  std::vector<SizedChoice> choices;
  for (std::size_t bytes = kSmallest; bytes <= kLargest; bytes *= 4) {
    SizedChoice best;
    for (const Algorithm algorithm : choosable_algorithms()) {
      // With one node, or one rank per node, hierarchical is the same as another algorithm.
      if (algorithm == Algorithm::hierarchical &&
          (nodes.size() == 1 || nodes.size() == node_of.size()))
        continue;
      const auto schedule =
          make_schedule(Collective::all_reduce, algorithm, world, bytes, 1, 0, node_of);
      const double seconds = predicted_time(model, schedule);
      if (best.algorithm == Algorithm::automatic || seconds < best.seconds)
        best = {static_cast<double>(bytes), algorithm, seconds};
    }
    if (!choices.empty() && choices.back().algorithm == best.algorithm)
      choices.back() = best;
    else
      choices.push_back(best);
  }
  return choices;
}

const SizedChoice& choice_for(const std::vector<SizedChoice>& choices, double bytes) {
  require(!choices.empty(), "the list of choices is empty");
  for (const SizedChoice& choice : choices)
    if (bytes <= choice.up_to) return choice;
  return choices.back();
}

}  // namespace ringsmith::comm
