// Recursive halving and doubling: as few bytes as the ring, in as few rounds as a tree.
//
// Reduce-scatter by halving: in every round, a rank sends half of its current range to a partner
// and adds the half that it receives to the half that it keeps. The distance of the partners
// halves, too. After log2(p) rounds, each rank holds one chunk of the sum; the all-gather doubles
// the ranges again.
//
//     p = 8, rank 2 (010)     range it works on       partner   sends       receives and adds
//     round 0, distance 4     [0 1 2 3 4 5 6 7]       6         4 5 6 7     0 1 2 3
//     round 1, distance 2     [0 1 2 3]               0         0 1         2 3
//     round 2, distance 1     [2 3]                   3         3           2        -> chunk 2
//
// | world                | rounds          | elements sent by one rank                        |
// |----------------------|-----------------|--------------------------------------------------|
// | p = 2^k              | 2 log2 p        | 2 count (p - 1) / p                              |
// | p + r, 0 < r < p     | 2 log2 p + 2    | ranks 0 to r - 1: count more; ranks p on: count  |
//
// If the world is not a power of two, rank p + i sends its buffer to rank i before the first round
// and receives the result from it after the last.
//
// The sums. y[i] = x[p + i] + x[i], or x[i] if there is no rank p + i. Ranks at distance p / 2 are
// added first, then at p / 4, and neighbours last. For p = 4, chunk 0:
//     (y[0] + y[2]) + (y[1] + y[3])
// One rank sums a chunk and the others copy it, so all ranks get the same bits.
//
// Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH",
// 2005.
#pragma once

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

// Requires world >= 1.
[[nodiscard]] Schedule halving_doubling_all_reduce(int world, std::size_t count);

// Returns the largest power of two that is at most world.
[[nodiscard]] int halving_core(int world);

}  // namespace ringsmith::comm
