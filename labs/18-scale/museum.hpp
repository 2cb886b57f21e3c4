// Lab 18, part 3: a museum of wrong simulators. Each exhibit is a timeline() and account() with one
// bug that someone has really written. You do not see them; you write the tests that find them.
#pragma once

#include <cstddef>
#include <vector>

#include "simulator.hpp"

namespace lab18 {

// A job, its failures, and the expected account(timeline(plan, failures)).
struct Case {
  Plan plan;
  std::vector<Time> failures;  // in ascending order
  Account expected;
};

inline constexpr std::size_t kMostCases = 12, kMostFailures = 6;  // per list; per case

// Task 11. Returns at most 12 cases with at most 6 failures each, so decide which bug each case
// would find. A case finds an exhibit that returns a different account or none. A case that a
// correct simulator also fails is a false alarm: it finds nothing, and costs one exhibit.
inline std::vector<Case> cases() {
#ifdef SOLUTION
  // Without failures: 10 work, 3 save, 10 work, 3 save, 4 work, done at 30.
  const Plan plan{24, 10, 3, 2};
  const Time far = 24'000'000'000'000'007;  // odd, and too large for a double to represent
  return {
      {plan, {}, {24, 6, 0, 0, 0}},
      {{20, 10, 3, 2}, {}, {20, 3, 0, 0, 0}},  // no save at 23, where the work ends
      {plan, {4}, {24, 6, 2, 4, 0}},           // nothing was saved yet
      {plan, {17, 18}, {24, 6, 3, 4, 0}},      // in a restart
      {plan, {24}, {24, 6, 2, 11, 0}},         // in a save: the 10 of work before it are lost too
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
