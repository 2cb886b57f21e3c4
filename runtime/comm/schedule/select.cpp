#include "runtime/comm/schedule/select.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/direct.hpp"
#include "runtime/comm/schedule/halving.hpp"
#include "runtime/comm/schedule/hierarchical.hpp"
#include "runtime/comm/schedule/own.hpp"
#include "runtime/comm/schedule/ring.hpp"
#include "runtime/comm/schedule/tree.hpp"

namespace ringsmith::comm {

namespace {

struct Asked {
  Collective collective;
  int world;
  std::size_t count, element_size;
  int root;
  const std::vector<int>& node_of;
};

struct Shipped {
  Collective collective;  // none: serves all of them
  const char* algorithm;
  Schedule (*make)(const Asked&);
};

Schedule ring_or_own(const Asked& a) {
  const Schedule* own = own_ring(a.world);
  if (own == nullptr) return ring_all_reduce(a.world, a.count);
  Schedule schedule = *own;
  schedule.count = a.count;
  schedule.chunks = split_evenly(a.count, static_cast<int>(own->chunks.size()));
  return schedule;
}

// schedule_player draws the first entry of a collective by default (select.hpp).
constexpr Shipped kShipped[] = {
    {Collective::all_reduce, "ring", ring_or_own},
    {Collective::all_reduce, "gloo_ring",
     [](const Asked& a) { return gloo_ring_all_reduce(a.world, a.count, a.element_size); }},
    {Collective::reduce_scatter, "ring",
     [](const Asked& a) { return ring_reduce_scatter(a.world, a.count); }},
    {Collective::all_gather, "ring",
     [](const Asked& a) { return ring_all_gather(a.world, a.count); }},
    {Collective::broadcast, "tree",
     [](const Asked& a) { return tree_broadcast(a.world, a.count, a.root); }},
    {Collective::reduce, "tree",
     [](const Asked& a) { return tree_reduce(a.world, a.count, a.root); }},
    {Collective::none, "direct",
     [](const Asked& a) { return direct_schedule(a.collective, a.world, a.count, a.root); }},
    {Collective::all_reduce, "one_shot",
     [](const Asked& a) { return one_shot_all_reduce(a.world, a.count); }},
    {Collective::all_reduce, "tree",
     [](const Asked& a) { return tree_all_reduce(a.world, a.count); }},
    {Collective::all_reduce, "halving_doubling",
     [](const Asked& a) { return halving_doubling_all_reduce(a.world, a.count); }},
    {Collective::all_reduce, "double_tree",
     [](const Asked& a) { return double_tree_all_reduce(a.world, a.count); }},
    {Collective::all_reduce, "hierarchical",
     [](const Asked& a) { return hierarchical_all_reduce(a.world, a.count, a.node_of); }},
};

bool serves(const Shipped& shipped, Collective collective) {
  return shipped.collective == collective || shipped.collective == Collective::none;
}

}  // namespace

const std::vector<Collective>& all_collectives() {
  static const std::vector<Collective> all = [] {
    std::vector<Collective> found;
    for (auto c = Collective::all_reduce; c != Collective::send;
         c = static_cast<Collective>(static_cast<int>(c) + 1))
      found.push_back(c);
    return found;
  }();
  return all;
}

std::vector<std::string> algorithms_of(Collective collective) {
  std::vector<std::string> names;
  for (const Shipped& shipped : kShipped)
    if (serves(shipped, collective)) names.emplace_back(shipped.algorithm);
  return names;
}

Collective parse_collective(std::string_view name) {
  std::string choices;
  for (const Collective collective : all_collectives()) {
    if (name == name_of(collective)) return collective;
    choices += (choices.empty() ? "" : ", ") + std::string(name_of(collective));
  }
  throw UsageError("unknown collective '" + std::string(name) + "': choose one of " + choices);
}

Schedule make_schedule(Collective collective, std::string_view algorithm, int world,
                       std::size_t count, std::size_t element_size, int root,
                       const std::vector<int>& node_of) {
  const auto& known = all_collectives();
  if (std::find(known.begin(), known.end(), collective) == known.end())
    throw Error(std::string("no schedule for ") + name_of(collective));
  const bool plain = collective == Collective::all_reduce && algorithm == "plain_ring";
  std::string choices;
  for (const Shipped& shipped : kShipped) {
    if (!serves(shipped, collective)) continue;
    if (shipped.algorithm == (plain ? "ring" : algorithm)) {
      Schedule schedule = shipped.make({collective, world, count, element_size, root, node_of});
      schedule.node_of = node_of;
      return schedule;
    }
    choices += (choices.empty() ? "" : ", ") + std::string(shipped.algorithm);
  }
  throw UsageError("no algorithm '" + std::string(algorithm) + "' for " + name_of(collective) +
                   ": choose one of " + choices);
}

}  // namespace ringsmith::comm
