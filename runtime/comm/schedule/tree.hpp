// Binomial trees: log2(world) rounds instead of world - 1, for small messages to or from one rank.
//
//     broadcast from rank 0, 8 ranks                reduce: the same arrows backwards,
//                                                   in the opposite order of rounds
//     round 0   0 ----------------> 4
//     round 1   0 ------> 2         4 ------> 6
//     round 2   0 -> 1    2 -> 3    4 -> 5    6 -> 7
//
// | collective | rounds                | elements sent by one rank, at most       |
// |------------|-----------------------|------------------------------------------|
// | broadcast  | ceil(log2 world)      | count ceil(log2 world), by the root      |
// | reduce     | ceil(log2 world)      | count                                    |
// | all_reduce | 2 ceil(log2 world)    | count ceil(log2 world), by rank 0        |
//
// The sums. With y[v] = x[(root + v) mod world], neighbours are added first, then neighbouring
// pairs, then fours (missing ranks are left out):
//     ((y[0] + y[1]) + (y[2] + y[3])) + ((y[4] + y[5]) + (y[6] + y[7]))
// all_reduce is reduce to rank 0, then broadcast from rank 0: all ranks get the same bits.
#pragma once

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

// World >= 1; one chunk, which the executor may cut into slices and pipeline.
[[nodiscard]] Schedule tree_broadcast(int world, std::size_t count, int root);
[[nodiscard]] Schedule tree_reduce(int world, std::size_t count, int root);
[[nodiscard]] Schedule tree_all_reduce(int world, std::size_t count);

// ceil(log2 world): 0 for one rank.
[[nodiscard]] int tree_rounds(int world);

}  // namespace ringsmith::comm
