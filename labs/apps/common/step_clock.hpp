// Measures steps: drains the tracer after each one, computes where its time went, and keeps the
// events for the trace file, whole steps until the bound is reached.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/overlap.hpp"
#include "runtime/base/tracer.hpp"

namespace ringsmith::apps {

class StepClock {
 public:
  // With tracing off, steps have a length and nothing else.
  explicit StepClock(bool tracing);
  ~StepClock();
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;

  void begin();
  // The time of the step since begin().
  trace::StepTime end(std::int64_t step);
  // Takes what was recorded outside steps (evaluation, for instance) into the trace.
  void keep_rest();

  [[nodiscard]] const trace::StepTime& total() const { return total_; }
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
  trace::StepTime total_;
  std::vector<trace::Event> events_;
};

}  // namespace ringsmith::apps
