#include "runtime/base/overlap.hpp"

#include <algorithm>
#include <cstring>
#include <map>

namespace ringsmith::trace {

double StepTime::hidden_fraction() const {
  return comm > 0 ? 1.0 - static_cast<double>(exposed) / static_cast<double>(comm) : 0.0;
}

std::int64_t StepTime::other() const {
  return std::max<std::int64_t>(0, step - forward - backward - optim - data - exposed);
}

StepTime& StepTime::operator+=(const StepTime& o) {
  step += o.step;
  forward += o.forward;
  backward += o.backward;
  optim += o.optim;
  data += o.data;
  comm += o.comm;
  exposed += o.exposed;
  tail += o.tail;
  return *this;
}

namespace {

using Pieces = std::vector<Interval>;

// The intervals of the events that fit, each less what its own thread spent in comm and wait.
template <class Predicate>
Intervals working(const std::vector<Event>& events, const std::map<int, Intervals>& standing_still,
                  Predicate fits) {
  std::map<int, Pieces> by_thread;
  for (const Event& e : events)
    if (fits(e)) by_thread[e.thread].push_back({e.begin_ns, e.end_ns});
  Pieces all;
  for (auto& [thread, pieces] : by_thread) {
    Intervals work = unite(std::move(pieces));
    const auto still = standing_still.find(thread);
    if (still != standing_still.end()) work = subtract(work, still->second);
    all.insert(all.end(), work.begin(), work.end());
  }
  return unite(std::move(all));
}

}  // namespace

StepTime measure(const std::vector<Event>& events, Interval window) {
  std::map<int, Pieces> still_pieces;
  Pieces comm_pieces;
  for (const Event& e : events) {
    const Interval i{e.begin_ns, e.end_ns};
    if (e.category == Category::comm) comm_pieces.push_back(i);
    if (e.category == Category::comm || e.category == Category::wait)
      still_pieces[e.thread].push_back(i);
  }
  std::map<int, Intervals> still;
  for (auto& [thread, pieces] : still_pieces) still[thread] = unite(std::move(pieces));

  const auto in_category = [&](Category c) {
    return clip(working(events, still, [c](const Event& e) { return e.category == c; }), window);
  };
  const auto compute_named = [&](const char* name) {
    return length(clip(working(events, still,
                               [name](const Event& e) {
                                 return e.category == Category::compute &&
                                        std::strcmp(e.name, name) == 0;
                               }),
                       window));
  };

  const Intervals compute = in_category(Category::compute);
  const Intervals optim = in_category(Category::optim);
  Pieces work_pieces(compute);
  work_pieces.insert(work_pieces.end(), optim.begin(), optim.end());
  const Intervals comm = clip(unite(std::move(comm_pieces)), window);

  StepTime t;
  t.step = window.end - window.begin;
  t.forward = compute_named("forward");
  t.backward = compute_named("backward");
  t.optim = length(optim);
  t.data = length(in_category(Category::data));
  t.comm = length(comm);
  t.exposed = length(subtract(comm, unite(std::move(work_pieces))));
  if (!comm.empty() && !compute.empty())
    t.tail = std::max<std::int64_t>(0, comm.back().end - compute.back().end);
  return t;
}

}  // namespace ringsmith::trace
