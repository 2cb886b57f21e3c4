// A schedule of one's own, from a text file: a student's ring (labs/13-trainer), or an
// experiment's.
//
//     all_reduce world 3 chunks 3
//     0 1 2 2 1 reduce          rank 0 sends chunk 2 to rank 1, and receives chunk 1 from rank 2,
//     0 1 1 2 0 reduce          which it adds to its own; one line a step, in each rank's order
//     ...
//
// -1 for a rank: nobody. The chunks are equal parts, as split_evenly() makes them: so one text is a
// schedule for every count.
#pragma once

#include <string_view>

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

// UsageError with the line that it does not understand. It proves nothing: see
// analysis/checker.hpp.
[[nodiscard]] Schedule parse_schedule(std::string_view text, std::size_t count);

// From now on make_schedule() answers with this one, its chunks cut for the count that is asked
// for, where an all_reduce by "ring" is asked for in a world of as many ranks; one for each size.
// Of the whole process: to be called before groups of that size make calls.
void use_as_ring(const Schedule& own);
// What use_as_ring() was told for such a world; nullptr: nothing.
[[nodiscard]] const Schedule* own_ring(int world);

}  // namespace ringsmith::comm
