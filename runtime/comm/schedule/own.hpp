// A user's schedule, read from a text file: a student's ring (labs/13-trainer), or an experiment.
//
//     all_reduce world 3 chunks 3
//     0 1 2 2 1 reduce          rank 0 sends chunk 2 to rank 1, and receives chunk 1 from rank 2,
//     0 1 1 2 0 reduce          which it adds to its own; one line per step, in each rank's order
//     ...
//
// A peer of -1 means that there is none. The chunks are equal parts, as split_evenly() makes them,
// so one text is a schedule for every count.
#pragma once

#include <string_view>

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

// Throws UsageError quoting the line that it cannot parse. runtime/analysis/checker.hpp verifies
// schedules.
[[nodiscard]] Schedule parse_schedule(std::string_view text, std::size_t count);

// Makes make_schedule() return this schedule, cut for the requested count, for all_reduce by "ring"
// in a world of this size. A process has one such schedule per world size. Must be called before
// groups of that size make calls.
void use_as_ring(const Schedule& own);
// Returns the schedule of use_as_ring() for this world size, or nullptr.
[[nodiscard]] const Schedule* own_ring(int world);

}  // namespace ringsmith::comm
