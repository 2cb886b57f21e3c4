// A custom all-reduce, selected by `--schedule PATH`, that replaces the built-in ring.
//
// | PATH               | is                                                                      |
// |--------------------|-------------------------------------------------------------------------|
// | FILE.so            | a shared object that returns the steps for a world: a student's ring of |
// |                    | lab 06, compiled by `make own-ring` (labs/torch/own_ring)               |
// | a folder           | the folder of a lab: its ring.so is used                                |
// | any other file     | the steps as text, of one world (runtime/comm/schedule/own.hpp)         |
//
// A schedule that the checker cannot prove is rejected, so a program never runs an incorrect one.
#pragma once

#include <string>

namespace ringsmith::apps {

// Name and type of the function in a shared object. It returns the steps for a world as text that
// is valid until the next call; on failure it returns '!' followed by the reason.
inline constexpr const char* kOwnRingFunction = "ringsmith_own_ring";
using OwnRingFunction = const char*(int world);

// From now on the schedule at this path replaces the ring in worlds of this size. Must be called
// before the group's first all-reduce. Returns the schedule's text so that the ranks can compare
// it. Throws UsageError naming the line if the text cannot be parsed, otherwise naming the path: if
// it cannot be read, is for another world, or is wrong (with the checker's finding).
std::string use_schedule_of(const std::string& path, int world);

}  // namespace ringsmith::apps
