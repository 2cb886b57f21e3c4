// Lab 18, part 3: a museum of wrong simulators. Each exhibit is a timeline() and account() with
// one bug that somebody has really written. You do not see them. You write the tests that find
// them.
#pragma once

#include <cstddef>
#include <vector>

#include "simulator.hpp"

namespace lab18 {

// A job, when it fails, and what account(timeline(plan, failures)) is.
struct Case {
  Plan plan;
  std::vector<Time> failures;  // in ascending order
  Account expected;
};

inline constexpr std::size_t kMostCases = 12, kMostFailures = 6;  // of the whole list; of each case

// Task 11. At most 12 cases with at most 6 failures each: they must be few, so think which bug
// each of them would find. An exhibit is found by a case if its account differs, or finds none. A
// case that a right simulator fails as well is a false alarm: it finds nothing, and costs one
// exhibit.
inline std::vector<Case> cases() {
#ifdef SOLUTION
  // Without failures: 10 work, 3 save, 10 work, 3 save, 4 work, done at 30.
  const Plan plan{24, 10, 3, 2};
  const Time far = 24'000'000'000'000'007;  // odd, and beyond what a double can tell apart
  return {
      {plan, {}, {24, 6, 0, 0, 0}},
      {{20, 10, 3, 2}, {}, {20, 3, 0, 0, 0}},  // no save at 23, where work ends as well
      {plan, {4}, {24, 6, 2, 4, 0}},           // nothing was saved yet
      {plan, {17, 18}, {24, 6, 3, 4, 0}},      // in a restart
      {plan, {24}, {24, 6, 2, 11, 0}},         // in a save: 10 of work are lost as well
      {plan, {13}, {24, 6, 2, 0, 0}},          // when a save ends
      {plan, {30}, {24, 6, 0, 0, 0}},          // when the job ends
      {plan, {28}, {24, 6, 2, 2, 0}},          // after the last save
      {plan, {4, 12, 20, 40}, {24, 6, 8, 21, 0}},
      {{far, far - 1, 3, 2}, {}, {far, 3, 0, 0, 0}},
  };
#else
  kit::todo("task 11, cases");
#endif
}

}  // namespace lab18
