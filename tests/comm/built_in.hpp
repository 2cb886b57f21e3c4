#pragma once

#include "runtime/comm/schedule/schedule.hpp"
#include "runtime/comm/schedule/select.hpp"

namespace ringsmith::comm::testing {

// Returns placements of ranks on nodes: unspecified, blocks of k ranks (the last one may be
// smaller), and round-robin.
inline std::vector<std::vector<int>> shapes_of_nodes(int world) {
  std::vector<std::vector<int>> shapes{{}};
  for (int k = 1; k < world; ++k) {
    shapes.push_back(nodes_of(world, k));
    if (k < 2) continue;
    shapes.emplace_back();
    for (int rank = 0; rank < world; ++rank) shapes.back().push_back(rank % k);
  }
  return shapes;
}

// Calls f(schedule) for every built-in schedule with every world up to 8, every root and every
// count up to 3 world + 1 (for all_to_all, multiples of the world). Hierarchical schedules are
// built for every placement.
template <class F>
void for_each_built_in(F f) {
  for (int world = 1; world <= 8; ++world)
    for (const Collective collective : all_collectives())
      for (const Algorithm algorithm : algorithms_of(collective))
        for (int root = 0; root < (contract_of(collective).rooted() ? world : 1); ++root)
          for (int count = 0; count <= 3 * world + 1; ++count)
            if (collective != Collective::all_to_all || count % world == 0)
              for (const auto& nodes : algorithm == Algorithm::hierarchical ? shapes_of_nodes(world)
                                                                            : shapes_of_nodes(1))
                f(make_schedule(collective, algorithm, world, static_cast<std::size_t>(count), 4,
                                root, nodes));
}

}  // namespace ringsmith::comm::testing
