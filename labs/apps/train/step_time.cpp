#include "labs/apps/train/step_time.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "runtime/comm/transport/peers.hpp"

namespace ringsmith::apps {

using trace::Category;
using trace::FinishedSpan;

Intervals unite(std::vector<Interval> intervals) {
  std::ranges::sort(intervals, {}, &Interval::begin);
  Intervals out;
  for (const Interval i : intervals) {
    if (i.end <= i.begin) continue;
    if (!out.empty() && i.begin <= out.back().end)
      out.back().end = std::max(out.back().end, i.end);
    else
      out.push_back(i);
  }
  return out;
}

Intervals subtract(const Intervals& a, const Intervals& b) {
  Intervals out;
  std::size_t j = 0;
  for (Interval rest : a) {
    while (j < b.size() && b[j].end <= rest.begin) ++j;
    // b[j] may also overlap the next interval of a, so j is not advanced.
    for (std::size_t k = j; k < b.size() && b[k].begin < rest.end; ++k) {
      if (b[k].begin > rest.begin) out.push_back({rest.begin, b[k].begin});
      rest.begin = std::max(rest.begin, b[k].end);
    }
    if (rest.begin < rest.end) out.push_back(rest);
  }
  return out;
}

Intervals clip(const Intervals& a, Interval window) {
  Intervals out;
  for (const Interval i : a) {
    const Interval part{std::max(i.begin, window.begin), std::min(i.end, window.end)};
    if (part.begin < part.end) out.push_back(part);
  }
  return out;
}

std::int64_t length(const Intervals& a) {
  std::int64_t sum = 0;
  for (const Interval i : a) sum += i.end - i.begin;
  return sum;
}

double StepTime::hidden_fraction() const {
  return comm > 0 ? 1.0 - static_cast<double>(exposed) / static_cast<double>(comm) : 0.0;
}

std::int64_t StepTime::other() const {
  return std::max<std::int64_t>(0, step - forward - backward - optim - data - exposed);
}

StepTime& StepTime::operator+=(const StepTime& o) {
  for (const auto time : kStepTimes) this->*time += o.*time;
  return *this;
}

namespace {

// The intervals of the matching events, without their thread's time in comm and wait.
template <class Predicate>
Intervals working(const std::vector<FinishedSpan>& events,
                  const std::map<int, Intervals>& standing_still, Predicate fits) {
  std::map<int, Intervals> by_thread;
  for (const FinishedSpan& e : events)
    if (fits(e)) by_thread[e.thread].push_back({e.begin_ns, e.end_ns});
  Intervals all;
  for (auto& [thread, pieces] : by_thread) {
    Intervals work = unite(std::move(pieces));
    const auto still = standing_still.find(thread);
    if (still != standing_still.end()) work = subtract(work, still->second);
    all.insert(all.end(), work.begin(), work.end());
  }
  return unite(std::move(all));
}

}  // namespace

StepTime measure(const std::vector<FinishedSpan>& events, Interval window) {
  std::map<int, Intervals> still_pieces;
  Intervals comm_pieces;
  for (const FinishedSpan& e : events) {
    const Interval i{e.begin_ns, e.end_ns};
    if (e.category == Category::comm) comm_pieces.push_back(i);
    if (e.category == Category::comm || e.category == Category::wait)
      still_pieces[e.thread].push_back(i);
  }
  std::map<int, Intervals> still;
  for (auto& [thread, pieces] : still_pieces) still[thread] = unite(std::move(pieces));

  const auto in_category = [&](Category c) {
    return clip(working(events, still, [c](const FinishedSpan& e) { return e.category == c; }),
                window);
  };
  const auto compute_named = [&](const char* name) {
    return length(clip(working(events, still,
                               [name](const FinishedSpan& e) {
                                 return e.category == Category::compute &&
                                        std::strcmp(e.name, name) == 0;
                               }),
                       window));
  };

  const auto waits = [&](const char* name) {
    Intervals pieces;
    for (const FinishedSpan& e : events)
      if (std::strcmp(e.name, name) == 0) pieces.push_back({e.begin_ns, e.end_ns});
    return length(clip(unite(std::move(pieces)), window));
  };

  const Intervals compute = in_category(Category::compute);
  const Intervals optim = in_category(Category::optim);
  Intervals work_pieces(compute);
  work_pieces.insert(work_pieces.end(), optim.begin(), optim.end());
  const Intervals comm = clip(unite(std::move(comm_pieces)), window);

  const std::int64_t tail =
      comm.empty() || compute.empty() ? 0 : comm.back().end - compute.back().end;
  return {.step = window.end - window.begin,
          .forward = compute_named("forward"),
          .backward = compute_named("backward"),
          .optim = length(optim),
          .data = length(in_category(Category::data)),
          .comm = length(comm),
          .exposed = length(subtract(comm, unite(std::move(work_pieces)))),
          .tail = std::max<std::int64_t>(0, tail),
          .wait_within = waits(comm::kWaitWithinNode),
          .wait_between = waits(comm::kWaitBetweenNodes)};
}

StepClock::StepClock(bool tracing) : tracing_(tracing) {
  trace::enable(tracing);
  if (tracing) trace::name_thread("training");
}

StepClock::~StepClock() { trace::enable(false); }

void StepClock::begin() { begin_ns_ = trace::now_ns(); }

StepTime StepClock::end(std::int64_t step) {
  const Interval window{begin_ns_, trace::now_ns()};
  trace::record("step", trace::Category::frame, window.begin, window.end, {"step", step});
  const auto events = trace::drain();
  const StepTime t = measure(events, window);
  total_ += t;
  ++steps_;
  keep(events);
  return t;
}

void StepClock::keep_rest() { keep(trace::drain()); }

void StepClock::keep(const std::vector<trace::FinishedSpan>& events) {
  // Once a step has been left out, later steps are left out, too: a trace with gaps would mislead.
  if (lost_ == 0 && events_.size() + events.size() <= kKeptEvents)
    events_.insert(events_.end(), events.begin(), events.end());
  else
    lost_ += events.size();
}

}  // namespace ringsmith::apps
