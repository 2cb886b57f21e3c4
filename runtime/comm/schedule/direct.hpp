// Direct algorithms: every rank exchanges data with every other rank, without relays. Data moves at
// most twice, over many links; in a ring it moves up to 2 (world - 1) times, over few links. Direct
// algorithms are the choice where latency matters, or where all ranks can read each other's memory.
//
//     two-shot (4 ranks, chunk 0)                    one-shot (rank 1)
//
//        x1 ---+                    +---> rank 1       x0 --+
//        x2 ---+--> rank 0 = sum ---+---> rank 2       x1 --+  (own, local)
//        x3 ---+                    +---> rank 3       x2 --+--> sum, on every rank by itself
//            reduce-scatter      all-gather            x3 --+
//
// | collective             | steps         | latencies | elements sent by a rank that sends any  |
// |------------------------|---------------|-----------|-----------------------------------------|
// | all_reduce, direct     | 2 world - 2   | all steps | 2 count (world - 1) / world             |
// | all_reduce, one_shot   | 2 world - 1   | 1         | count (world - 1)                       |
// | reduce_scatter         | world - 1     | all steps | count (world - 1) / world               |
// | all_gather             | world - 1     | all steps | count (world - 1) / world               |
// | all_to_all             | world         | all but 1 | count (world - 1) / world               |
// | gather, scatter        | world - 1     | 1         | its chunk; root of scatter: all others' |
// | broadcast, reduce      | world - 1     | 1         | count; root of broadcast: world - 1     |
// |                        |               |           | times count                             |
//
// The two-shot all_reduce could run in two latencies. Here its steps are pairwise exchanges, one
// after the other, which need no buffering for messages of any size; an engine that reads peers'
// memory directly may post everything immediately, with the same sums. one_shot posts all its sends
// first, so it needs a slot for each whole message.
//
// The sum of an element is the same expression on every rank that holds the result:
//     direct, reduce_scatter, chunk c:  ((x[c] + x[c+1]) + x[c+2]) + ...     ranks modulo world
//     reduce:                           ((x[root] + x[root+1]) + ...         ranks modulo world
//     one_shot:                         ((x[0] + x[1]) + x[2]) + ... + x[world-1]
// Every rank computes one_shot's sum itself, starting at rank 0 so that all get the same bits. In
// that order, a rank's own value is in the middle of its sum, so the input is separate from the
// work buffer. In step s of the two-shot all_reduce, reduce_scatter and all_gather, a rank sends to
// rank - 1 - s and receives from rank + 1 + s, so no two ranks send to the same rank in one step.
#pragma once

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

// Returns the schedule of any collective, derived from its contract (collective.hpp). world must be
// >= 1; count is the work buffer's length in elements. For all_to_all, count must be a multiple of
// world, so that the parts that two ranks exchange have the same length. In step s of all_to_all,
// ranks r and s - r (modulo world) exchange parts. The step that overwrites a part also sends it,
// so executors that send first may run it in place.
[[nodiscard]] Schedule direct_schedule(Collective collective, int world, std::size_t count,
                                       int root = 0);
[[nodiscard]] Schedule one_shot_all_reduce(int world, std::size_t count);

}  // namespace ringsmith::comm
