#include "runtime/comm/schedule/select.hpp"

#include <map>

#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/direct.hpp"
#include "runtime/comm/schedule/halving.hpp"
#include "runtime/comm/schedule/hierarchical.hpp"
#include "runtime/comm/schedule/ring.hpp"
#include "runtime/comm/schedule/tree.hpp"

namespace ringsmith::comm {

const std::vector<Collective>& all_collectives() {
  static const std::vector<Collective> all = {Collective::all_reduce, Collective::reduce_scatter,
                                              Collective::all_gather, Collective::broadcast,
                                              Collective::reduce,     Collective::gather,
                                              Collective::scatter,    Collective::all_to_all};
  return all;
}

const std::vector<std::string>& algorithms_of(Collective collective) {
  static const std::map<Collective, std::vector<std::string>> table = {
      {Collective::all_reduce,
       {"ring", "gloo_ring", "direct", "one_shot", "tree", "halving_doubling", "double_tree",
        "hierarchical"}},
      {Collective::reduce_scatter, {"ring", "direct"}},
      {Collective::all_gather, {"ring", "direct"}},
      {Collective::broadcast, {"tree", "direct"}},
      {Collective::reduce, {"tree", "direct"}},
      {Collective::gather, {"direct"}},
      {Collective::scatter, {"direct"}},
      {Collective::all_to_all, {"direct"}}};
  return table.at(collective);
}

bool is_rooted(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce ||
         collective == Collective::gather || collective == Collective::scatter;
}

Collective parse_collective(std::string_view name) {
  std::string choices;
  for (const Collective collective : all_collectives()) {
    if (name == name_of(collective)) return collective;
    choices += (choices.empty() ? "" : ", ") + std::string(name_of(collective));
  }
  throw UsageError("unknown collective '" + std::string(name) + "': choose one of " + choices);
}

namespace {

Schedule generate(Collective collective, std::string_view algorithm, int world, std::size_t count,
                  std::size_t element_size, int root, const std::vector<int>& node_of) {
  const bool ring = algorithm == "ring" || algorithm == "plain_ring";
  const bool tree = algorithm == "tree", direct = algorithm == "direct";
  switch (collective) {
    case Collective::all_reduce:
      if (ring) return ring_all_reduce(world, count);
      if (algorithm == "gloo_ring") return gloo_ring_all_reduce(world, count, element_size);
      if (direct) return direct_all_reduce(world, count);
      if (algorithm == "one_shot") return one_shot_all_reduce(world, count);
      if (tree) return tree_all_reduce(world, count);
      if (algorithm == "halving_doubling") return halving_doubling_all_reduce(world, count);
      if (algorithm == "double_tree") return double_tree_all_reduce(world, count);
      if (algorithm == "hierarchical") return hierarchical_all_reduce(world, count, node_of);
      break;
    case Collective::reduce_scatter:
      if (ring) return ring_reduce_scatter(world, count);
      if (direct) return direct_reduce_scatter(world, count);
      break;
    case Collective::all_gather:
      if (ring) return ring_all_gather(world, count);
      if (direct) return direct_all_gather(world, count);
      break;
    case Collective::broadcast:
      if (tree) return tree_broadcast(world, count, root);
      if (direct) return direct_broadcast(world, count, root);
      break;
    case Collective::reduce:
      if (tree) return tree_reduce(world, count, root);
      if (direct) return direct_reduce(world, count, root);
      break;
    case Collective::gather:
      if (direct) return direct_gather(world, count, root);
      break;
    case Collective::scatter:
      if (direct) return direct_scatter(world, count, root);
      break;
    case Collective::all_to_all:
      if (direct) return direct_all_to_all(world, count);
      break;
    default:
      throw Error(std::string("no schedule for ") + name_of(collective));
  }
  std::string choices;
  for (const std::string& name : algorithms_of(collective))
    choices += (choices.empty() ? "" : ", ") + name;
  throw UsageError("no algorithm '" + std::string(algorithm) + "' for " + name_of(collective) +
                   ": choose one of " + choices);
}

}  // namespace

Schedule make_schedule(Collective collective, std::string_view algorithm, int world,
                       std::size_t count, std::size_t element_size, int root,
                       const std::vector<int>& node_of) {
  Schedule schedule = generate(collective, algorithm, world, count, element_size, root, node_of);
  schedule.node_of = node_of;
  return schedule;
}

}  // namespace ringsmith::comm
