// How much communication was hidden by computation? The answer is computed from the events of one
// step on one rank:
//
//   K = union of computation   |--------------------|      forward, backward, optimizer
//   C = union of communication           |===| |========|
//   exposed = |C \ K|                               |===|   no computation
//   hidden fraction = 1 - exposed / |C|
//   tail = end of the last communication - end of the last computation before the optimizer
//
// Two popular metrics measure something else. (backward - comm) / backward reports 80 % overlap for
// 100 ms of backward followed by 20 ms of communication, though nothing overlaps; comm / (forward +
// backward) is the same whether the communication is serial or perfectly hidden.
//
// Spans nest: backward() contains the wait for the last bucket. So a thread computes only while it
// is inside a compute span and not inside its own comm or wait span.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/tracer.hpp"

namespace ringsmith::apps {

// A set of times: a sorted list of disjoint, non-empty half-open intervals that do not touch.
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

// Accepts any intervals, in any order, overlapping or empty; an interval that ends before it begins
// is empty.
[[nodiscard]] Intervals unite(std::vector<Interval> intervals);
[[nodiscard]] Intervals subtract(const Intervals& a, const Intervals& b);
[[nodiscard]] Intervals clip(const Intervals& a, Interval window);
[[nodiscard]] std::int64_t length(const Intervals& a);

struct StepTime {  // nanoseconds within one window; sums over steps by +=
  std::int64_t step = 0;
  std::int64_t forward = 0;   // compute spans named "forward", without their comm and waits
  std::int64_t backward = 0;  // the same for "backward"
  std::int64_t optim = 0;
  std::int64_t data = 0;
  std::int64_t comm = 0;     // |C|
  std::int64_t exposed = 0;  // |C \ K|
  std::int64_t tail = 0;
  // Waits for ranks of this node, and for ranks of other nodes.
  std::int64_t wait_within = 0;
  std::int64_t wait_between = 0;

  // Share of the communication that is hidden; 0 without communication.
  [[nodiscard]] double hidden_fraction() const;
  // The time outside of all parts; at least 0.
  [[nodiscard]] std::int64_t other() const;
  StepTime& operator+=(const StepTime& o);
};
constexpr std::int64_t StepTime::*kStepTimes[] = {
    &StepTime::step,        &StepTime::forward,     &StepTime::backward, &StepTime::optim,
    &StepTime::data,        &StepTime::comm,        &StepTime::exposed,  &StepTime::tail,
    &StepTime::wait_within, &StepTime::wait_between};

// Events may extend beyond the window; only the part inside counts.
[[nodiscard]] StepTime measure(const std::vector<trace::FinishedSpan>& events, Interval window);

// Drains the tracer after each step, and keeps whole steps of events, up to kKeptEvents.
class StepClock {
 public:
  explicit StepClock(bool tracing);
  ~StepClock();
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;

  void begin();
  StepTime end(std::int64_t step);
  // Adds events recorded outside of steps (e.g. during evaluation) to the trace.
  void keep_rest();

  [[nodiscard]] const StepTime& total() const { return total_; }
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  [[nodiscard]] const std::vector<trace::FinishedSpan>& events() const { return events_; }
  // Events that were measured but not kept, plus those that the tracer dropped.
  [[nodiscard]] std::uint64_t lost() const { return lost_ + trace::dropped(); }
  [[nodiscard]] bool tracing() const { return tracing_; }

  static constexpr std::size_t kKeptEvents = 100'000;  // 6 MB of memory, about 12 MB of JSON

 private:
  void keep(const std::vector<trace::FinishedSpan>& events);

  bool tracing_;
  std::int64_t begin_ns_ = 0;
  std::int64_t steps_ = 0;
  std::uint64_t lost_ = 0;
  StepTime total_;
  std::vector<trace::FinishedSpan> events_;
};

}  // namespace ringsmith::apps
