#include "labs/apps/common/step_clock.hpp"

namespace ringsmith::apps {

StepClock::StepClock(bool tracing) : tracing_(tracing) {
  trace::enable(tracing);
  if (tracing) trace::name_thread("training");
}

StepClock::~StepClock() { trace::enable(false); }

void StepClock::begin() { begin_ns_ = trace::now_ns(); }

trace::StepTime StepClock::end(std::int64_t step) {
  const Interval window{begin_ns_, trace::now_ns()};
  trace::record("step", trace::Category::frame, window.begin, window.end, {"step", step});
  const auto events = trace::drain();
  const trace::StepTime t = trace::measure(events, window);
  total_ += t;
  ++steps_;
  keep(events);
  return t;
}

void StepClock::keep_rest() { keep(trace::drain()); }

void StepClock::keep(const std::vector<trace::Event>& events) {
  // Once a step was left out, later and smaller ones are left out too: a trace with holes misleads.
  if (lost_ == 0 && events_.size() + events.size() <= kKeptEvents)
    events_.insert(events_.end(), events.begin(), events.end());
  else
    lost_ += events.size();
}

}  // namespace ringsmith::apps
