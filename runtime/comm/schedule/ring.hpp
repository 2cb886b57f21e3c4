// The ring: every rank communicates only with its two neighbours. Every link carries 1/world of the
// buffer in every step, so the bytes per rank hardly grow with the world.
//
//     reduce-scatter, 4 ranks, direction +1: the path of chunk 0 (the path of chunk c is the same,
//     c ranks further on)
//
//       step 0        step 1           step 2
//       rank 1 -----> rank 2 --------> rank 3 -----------> rank 0
//       x1            x1+x2            (x1+x2)+x3          ((x1+x2)+x3)+x0  = chunk 0, complete
//
//     all-gather: rank 0 sends chunk 0 around the ring once more, unchanged.
//
// | collective     | steps       | elements sent by one rank     |
// |----------------|-------------|-------------------------------|
// | reduce_scatter | world - 1   | count (world - 1) / world     |
// | all_gather     | world - 1   | count (world - 1) / world     |
// | all_reduce     | 2 world - 2 | 2 count (world - 1) / world   |
//
// The sums. Chunk c starts at rank c+1 and ends at rank c; each rank adds its own value:
//     chunk c = (...((x[c+1] + x[c+2]) + x[c+3]) + ...) + x[c]          ranks modulo world
// The sum is computed once, along one path, and then copied, so all ranks get the same bits.
// all_reduce gives the same bits as reduce_scatter followed by all_gather. With direction -1 the
// ring runs the other way:  chunk c = (...((x[c-1] + x[c-2]) + ...) + x[c], the order of gloo's
// ring.
//
// Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
#pragma once

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

// These functions return one step of one rank; chunk c belongs to rank c. direction is +1 (send to
// rank + 1) or -1. Steps run from 0 to world - 2, for all_reduce to 2 world - 3.
[[nodiscard]] Step ring_reduce_scatter_step(int world, int rank, int step, int direction = +1);
[[nodiscard]] Step ring_all_gather_step(int world, int rank, int step, int direction = +1);
[[nodiscard]] Step ring_all_reduce_step(int world, int rank, int step, int direction = +1);

// These functions return whole schedules. count is the length of the work buffer, which
// split_evenly() cuts into chunks; world must be at least 1.
[[nodiscard]] Schedule ring_reduce_scatter(int world, std::size_t count);
[[nodiscard]] Schedule ring_all_gather(int world, std::size_t count);
[[nodiscard]] Schedule ring_all_reduce(int world, std::size_t count);

// Returns the ring of PyTorch's gloo backend, with direction -1 and gloo's chunks, so that the sums
// have the same bits. element_size is needed because gloo computes its chunks in bytes.
[[nodiscard]] Schedule gloo_ring_all_reduce(int world, std::size_t count, std::size_t element_size);

// gloo cuts the buffer into segments of about 1 MiB or less, at least two per rank and the same
// number for each rank. A chunk is one rank's consecutive segments. Because segments are rounded
// up, the last chunks may be shorter or empty.
[[nodiscard]] std::vector<Chunk> gloo_chunks(int world, std::size_t count,
                                             std::size_t element_size);

}  // namespace ringsmith::comm
