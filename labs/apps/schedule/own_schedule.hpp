// A custom all-reduce, selected by `--schedule PATH`, that replaces the built-in ring.
//
// | PATH               | is                                                                      |
// |--------------------|-------------------------------------------------------------------------|
// | FILE.so            | a shared object that returns the steps for a world: a student's ring of |
// |                    | lab 06, compiled by `make own-ring` (labs/torch/own_ring)               |
// | a folder           | the folder of a lab: its ring.so is used                                |
// | any other file     | the steps as text, of one world (runtime/comm/schedule/own.hpp)         |
//
// A schedule that the checker cannot prove is rejected.
#pragma once

#include <string>

namespace ringsmith::apps {

// The function in a shared object: returns the steps for a world as text, valid until the next
// call, or '!' followed by the reason of a failure.
inline constexpr const char* kOwnRingFunction = "ringsmith_own_ring";
using OwnRingFunction = const char*(int world);

// Makes the schedule at this path replace the ring in worlds of this size; must be called before
// the group's first all-reduce. Returns the schedule's text so that the ranks can compare it.
// Throws UsageError naming the line if the text cannot be parsed, or the path if it cannot be read,
// is for another world, or is wrong (with the checker's finding).
std::string use_schedule_of(const std::string& path, int world);

}  // namespace ringsmith::apps
