// Unusual and correct: the student's own simulator, which the other tasks test, computes the
// expectations; most cases are a few moments of one large job.
#pragma once

#include <vector>

#include "simulator.hpp"

namespace lab18 {

struct Case {
  Plan plan;
  std::vector<Time> failures;
  Account expected;
};

inline constexpr std::size_t kMostCases = 12, kMostFailures = 6;

inline std::vector<Case> cases() {
  constexpr Time unit = 1'000'000'000'000'001;
  std::vector<Case> all;
  const auto add = [&](Plan plan, std::vector<Time> failures) {
    all.push_back({plan, failures, account(timeline(plan, failures))});
  };
  const Plan plan{24 * unit, 10 * unit, 3 * unit, 2 * unit};
  for (const Time at : {4, 13, 24, 28, 30}) add(plan, {at * unit});
  add(plan, {4 * unit, 5 * unit, 9 * unit, 17 * unit, 18 * unit, 40 * unit});
  add(plan, {11 * unit, 14 * unit});
  add({20 * unit, 10 * unit, 3 * unit, 2 * unit}, {});
  add({7, 3, 2, 2}, {1, 2, 4});
  return all;
}

}  // namespace lab18
