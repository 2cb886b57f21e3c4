// What each shipped algorithm costs, from the formulas in the headers of the generators, written
// down a second time without looking at any step: the checker compares the steps with it.
#pragma once

#include <optional>

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

struct Promise {
  int steps = 0;            // of every rank
  std::size_t busiest = 0;  // elements sent by the rank that sends most
  std::size_t total = 0;    // elements sent by all ranks together
  bool operator==(const Promise&) const = default;
};

// Nothing for an algorithm that is not in select.hpp's table (a student's own).
[[nodiscard]] std::optional<Promise> promised_cost(const Schedule& schedule);

// The same figures, counted from the steps.
[[nodiscard]] Promise counted_cost(const Schedule& schedule);

}  // namespace ringsmith::comm
