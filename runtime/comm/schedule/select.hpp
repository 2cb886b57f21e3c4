// All schedules of the library, by name.
//
// | collective     | algorithms (schedule_player draws the first) |
// |----------------|----------------------------------------------|
// | all_reduce     | ring, gloo_ring, direct, one_shot, tree,     |
// |                | halving_doubling, double_tree, hierarchical  |
// | reduce_scatter | ring, direct                                 |
// | all_gather     | ring, direct                                 |
// | broadcast      | tree, direct                                 |
// | reduce         | tree, direct                                 |
// | gather         | direct                                       |
// | scatter        | direct                                       |
// | all_to_all     | direct                                       |
//
// If a call names no algorithm, executor/dispatcher.hpp chooses it, and device/stream_engine.hpp on
// devices. "plain_ring" is also accepted for all_reduce; it has the schedule of ring, which
// executor/plain_ring.cpp runs in another way.
#pragma once

#include <string_view>

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

// Throws UsageError, naming the choices, if the collective does not have the algorithm, and Error
// for barrier, send and recv, which have no schedule. element_size (bytes) matters only to
// gloo_ring, root only to the rooted collectives. node_of (schedule.hpp: [rank], or empty for all
// on one node) matters only to hierarchical and to tools that draw or price the schedule.
[[nodiscard]] Schedule make_schedule(Collective collective, std::string_view algorithm, int world,
                                     std::size_t count, std::size_t element_size = 4, int root = 0,
                                     const std::vector<int>& node_of = {});

[[nodiscard]] std::vector<std::string> algorithms_of(Collective collective);
[[nodiscard]] const std::vector<Collective>& all_collectives();    // all that have schedules
[[nodiscard]] Collective parse_collective(std::string_view name);  // UsageError naming the choices

}  // namespace ringsmith::comm
