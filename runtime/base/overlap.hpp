// How much communication did computation hide? From the events of one step on one rank:
//
//   K = union of computation   |--------------------|      forward, backward, optimizer
//   C = union of communication           |===| |========|
//   exposed = |C \ K|                               |===|   nothing useful goes on
//   hidden fraction = 1 - exposed / |C|
//   tail = end of the last communication - end of the last computation before the optimizer
//
// Two popular metrics measure something else. (backward - comm) / backward calls 100 ms of backward
// followed by 20 ms of communication 80 % overlapped, though nothing overlaps; comm / (forward +
// backward) is the same for a serial run and for a perfectly hidden one. Only the intervals tell.
//
// Spans nest: backward() contains the wait for the last bucket. So a thread computes only while it
// is inside a compute span and not inside a comm or wait span of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/intervals.hpp"
#include "runtime/base/tracer.hpp"

namespace ringsmith::trace {

struct StepTime {  // nanoseconds within one window; sums over steps by +=
  std::int64_t step = 0;
  std::int64_t forward = 0;   // compute spans named "forward", less their comm and waits
  std::int64_t backward = 0;  // likewise "backward"
  std::int64_t optim = 0;
  std::int64_t data = 0;
  std::int64_t comm = 0;     // |C|
  std::int64_t exposed = 0;  // |C \ K|
  std::int64_t tail = 0;

  // The share of communication that computation covered; 0 without communication.
  [[nodiscard]] double hidden_fraction() const;
  // What none of the parts explains: bookkeeping of the loop. Never below 0.
  [[nodiscard]] std::int64_t other() const;
  StepTime& operator+=(const StepTime& o);
};

// Events may reach over the window; only what lies inside counts.
[[nodiscard]] StepTime measure(const std::vector<Event>& events, Interval window);

}  // namespace ringsmith::trace
