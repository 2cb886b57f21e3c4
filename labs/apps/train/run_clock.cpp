#include "labs/apps/train/run_clock.hpp"

#include <algorithm>
#include <utility>

namespace ringsmith::apps {

void RunClock::start(Device device) {
  device_ = device;
  begin_ns_ = end_ns_ = trace::now_ns();
}

void RunClock::begin_step() {
  steps_.begin();
  begin_part();
}

void RunClock::begin_part() {
  part_ns_ = trace::now_ns();
  if (steps_.tracing() && device_.is_cuda())
    part_event_ = Event::record(Stream::current(device_), Event::Timing::on);
}

void RunClock::end_part(const char* name, trace::Category category) {
  if (steps_.tracing() && device_.is_cuda() && category != trace::Category::data)
    parts_.push_back({name, category, std::move(part_event_),
                      Event::record(Stream::current(device_), Event::Timing::on)});
  else
    trace::record(name, category, part_ns_, trace::now_ns());
}

// The time at which the host's wait ends serves as the end of the last part.
void RunClock::settle_parts() {
  if (parts_.empty()) return;
  const Event& last = parts_.back().end;
  last.synchronize();
  const std::int64_t now = trace::now_ns();
  const auto at = [&](const Event& event) {
    return now - static_cast<std::int64_t>(1e9 * seconds_between(event, last));
  };
  for (const Part& part : parts_)
    trace::record(part.name, part.category, at(part.begin), at(part.end));
  parts_.clear();
}

StepTime RunClock::end_step(std::int64_t step) {
  const StepTime time = steps_.end(step);
  recent_[static_cast<std::size_t>(step % kRecent)] = time;
  const std::int64_t now = trace::now_ns();
  period_ns_ = now - std::exchange(end_ns_, now);
  return time;
}

void RunClock::leave_out(std::int64_t ns) {
  begin_ns_ += ns;
  end_ns_ += ns;
}

StepTime RunClock::recent() const {
  StepTime sum;
  for (const StepTime& t : recent_) sum += t;  // entries not yet filled are 0
  return sum;
}

std::int64_t RunClock::recent_steps() const { return std::min(steps_.steps(), kRecent); }

}  // namespace ringsmith::apps
