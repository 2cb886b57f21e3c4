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

#include "runtime/base/tracer.hpp"

namespace ringsmith::apps {

// Sets of time are sorted lists of disjoint half-open intervals [begin, end), not touching, none
// empty.
//
//   a       |-----|     |----|
//   b          |----------|
//   a \ b   |--|           |-|
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const Interval&) const = default;
};
using Intervals = std::vector<Interval>;

// Any intervals, in any order, overlapping or empty; an end before its begin counts as empty.
[[nodiscard]] Intervals unite(std::vector<Interval> intervals);
[[nodiscard]] Intervals subtract(const Intervals& a, const Intervals& b);
[[nodiscard]] Intervals clip(const Intervals& a, Interval window);
[[nodiscard]] std::int64_t length(const Intervals& a);

struct StepTime {  // nanoseconds within one window; sums over steps by +=
  std::int64_t step = 0;
  std::int64_t forward = 0;   // compute spans named "forward", less their comm and waits
  std::int64_t backward = 0;  // likewise "backward"
  std::int64_t optim = 0;
  std::int64_t data = 0;
  std::int64_t comm = 0;     // |C|
  std::int64_t exposed = 0;  // |C \ K|
  std::int64_t tail = 0;
  // Of comm, waiting for ranks of this node and of others (comm/transport/peers.hpp).
  std::int64_t wait_within = 0;
  std::int64_t wait_between = 0;

  // The share of communication that computation covered; 0 without communication.
  [[nodiscard]] double hidden_fraction() const;
  // What none of the parts explains: bookkeeping of the loop. Never below 0.
  [[nodiscard]] std::int64_t other() const;
  StepTime& operator+=(const StepTime& o);
};
// All of these, for what is done to each.
constexpr std::int64_t StepTime::*kStepTimes[] = {
    &StepTime::step,        &StepTime::forward,     &StepTime::backward, &StepTime::optim,
    &StepTime::data,        &StepTime::comm,        &StepTime::exposed,  &StepTime::tail,
    &StepTime::wait_within, &StepTime::wait_between};

// Events may reach over the window; only what lies inside counts.
[[nodiscard]] StepTime measure(const std::vector<trace::Event>& events, Interval window);

// Measures steps: drains the tracer after each one, and keeps the events for the trace file, whole
// steps until the bound is reached.
class StepClock {
 public:
  // With tracing off, steps have a length and nothing else.
  explicit StepClock(bool tracing);
  ~StepClock();
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;

  void begin();
  // The time of the step since begin().
  StepTime end(std::int64_t step);
  // Takes what was recorded outside steps (evaluation, for instance) into the trace.
  void keep_rest();

  [[nodiscard]] const StepTime& total() const { return total_; }
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  [[nodiscard]] const std::vector<trace::Event>& events() const { return events_; }
  // Events that were measured but not kept, and those that the tracer itself had to drop.
  [[nodiscard]] std::uint64_t lost() const { return lost_ + trace::dropped(); }
  [[nodiscard]] bool tracing() const { return tracing_; }

  static constexpr std::size_t kKeptEvents = 100'000;  // 6 MB of memory, about 12 MB of JSON

 private:
  void keep(const std::vector<trace::Event>& events);

  bool tracing_;
  std::int64_t begin_ns_ = 0;
  std::int64_t steps_ = 0;
  std::uint64_t lost_ = 0;
  StepTime total_;
  std::vector<trace::Event> events_;
};

}  // namespace ringsmith::apps
