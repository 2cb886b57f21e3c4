// Checks whether a schedule is safe on an engine without slots, where a receiver reads directly
// from the sender's work buffer.
//
//     rank 1 posts chunk 2 at step 3 ..... reads it ............... rank 2, step 3
//     rank 1 overwrites chunk 2 at step 5: has rank 2 read it by then?
//
// The data dependencies alone often suffice: if the message that rank 1 receives at step 5 can only
// be sent after rank 2's step 3, no extra wait is needed. This file follows these dependencies with
// vector clocks (per rank: how many steps of each other rank are known to be finished). It lists
// the writes that need a credit: a wait until the reader has passed a given step.
#pragma once

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

// `reader` must have finished reader_step before `rank` performs the receive of `step`.
struct CreditWait {
  int rank = 0, step = 0, chunk = 0;
  int reader = 0, reader_step = 0;
};

struct CreditReport {
  std::vector<CreditWait> waits;  // empty: the data dependencies suffice
  // Ranks that may finish while a peer still reads their buffer: the operation must end with a wait
  // for the readers.
  std::vector<int> read_after_end;
};

// The schedule must pass the checker. Empty messages do not order any steps. Steps are numbered as
// in one_chunk_steps().
[[nodiscard]] CreditReport check_credits(const Schedule& schedule);

}  // namespace ringsmith::comm
