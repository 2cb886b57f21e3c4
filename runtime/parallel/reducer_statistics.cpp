#include "runtime/parallel/reducer_statistics.hpp"

namespace ringsmith {

void ReducerClock::begin_backward(std::size_t buckets) {
  open_.clear();
  start_ = std::chrono::steady_clock::now();
  if (device_.is_cuda()) begin_ = Event::record(Stream::current(device_), Event::Timing::on);
  statistics_ = {.step = step() + 1, .buckets = std::vector<BucketTimes>(buckets)};
}

void ReducerClock::mark(double& seconds) {
  if (device_.is_cuda())
    open_.emplace_back(&seconds, Event::record(Stream::current(device_), Event::Timing::on));
  else
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

const ReducerStatistics& ReducerClock::statistics() {
  for (const auto& [seconds, event] : open_) {
    event.synchronize();
    *seconds = seconds_between(begin_, event);
  }
  open_.clear();
  return statistics_;
}

}  // namespace ringsmith
