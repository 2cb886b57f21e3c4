// An all-reduce of one's own in place of the shipped ring: what `--schedule PATH` names.
//
// | PATH               | is                                                                      |
// |--------------------|-------------------------------------------------------------------------|
// | FILE.so            | a shared object that is asked for the steps of a world: a student's ring |
// |                    | of lab 06, compiled by `make own-ring` (labs/torch/own_ring)             |
// | a folder           | a lab's: its ring.so                                                    |
// | any other file     | the steps as text, of one world (runtime/comm/schedule/own.hpp)         |
//
// The checker proves it, or it is refused; so every program runs a schedule that is right.
#pragma once

#include <string>

namespace ringsmith::apps {

// The function of a shared object: the steps of a world as text, valid until the next call; or,
// with a '!' before it, why there are none.
inline constexpr const char* kOwnRingFunction = "ringsmith_own_ring";
using OwnRingFunction = const char*(int world);

// From now on the schedule at the path takes the place of the ring in worlds of this size. To be
// called before the group's first all-reduce. Returns its text, for the ranks to compare.
// UsageError naming the path and the checker's finding if it is wrong.
std::string use_schedule_of(const std::string& path, int world);

}  // namespace ringsmith::apps
