// Unusual and correct: sets of time are maps from start points to end points, cut and joined one
// interval at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <stdexcept>
#include <vector>

namespace lab15 {

using Time = std::int64_t;

struct Interval {
  Time begin = 0;
  Time end = 0;
};

class TimeSet {
 public:
  TimeSet() = default;
  explicit TimeSet(std::span<const Interval> intervals) {
    for (const Interval& i : intervals) add(i);
  }
  void add(Interval i) {
    if (i.end <= i.begin) return;
    cut(i);
    const auto next = parts_.lower_bound(i.begin);
    if (next != parts_.end() && next->first == i.end) {
      i.end = next->second;
      parts_.erase(next);
    }
    parts_[i.begin] = i.end;
  }
  void cut(Interval i) {
    if (i.end <= i.begin) return;
    auto next = parts_.lower_bound(i.begin);
    if (next != parts_.begin()) {
      const auto former = std::prev(next);
      const Time end = former->second;
      if (end > i.begin) {
        former->second = i.begin;
        if (end > i.end) parts_[i.end] = end;
      }
    }
    while (next != parts_.end() && next->first < i.end) {
      const Time end = next->second;
      next = parts_.erase(next);
      if (end > i.end) next = parts_.emplace(i.end, end).first;
    }
  }
  Time length() const {
    Time sum = 0;
    for (const auto& [begin, end] : parts_) sum += end - begin;
    return sum;
  }
  const std::map<Time, Time>& parts() const { return parts_; }

 private:
  std::map<Time, Time> parts_;
};

inline Time covered(std::span<const Interval> intervals) { return TimeSet(intervals).length(); }

inline Time exposed(std::span<const Interval> communication,
                    std::span<const Interval> computation) {
  TimeSet left(communication);
  for (const Interval& i : computation) left.cut(i);
  return left.length();
}

enum class Category { compute, comm, wait, frame };

struct Event {
  Category category = Category::frame;
  std::int64_t thread = 0;
  Time begin = 0;
  Time end = 0;
};

struct StepTime {
  Time step = 0;
  Time compute = 0;
  Time comm = 0;
  Time exposed = 0;
};

inline StepTime measure(std::span<const Event> events, Interval window) {
  std::map<std::int64_t, TimeSet> work;
  std::vector<Interval> comm;
  for (const Event& e : events) {
    if (e.category == Category::compute) work[e.thread].add({e.begin, e.end});
    if (e.category == Category::comm) comm.push_back({e.begin, e.end});
  }
  for (const Event& e : events)
    if (e.category == Category::comm || e.category == Category::wait)
      work[e.thread].cut({e.begin, e.end});
  TimeSet computation, communication(comm);
  for (const auto& [thread, set] : work)
    for (const auto& [begin, end] : set.parts()) computation.add({begin, end});
  const Time lowest = std::numeric_limits<Time>::min(), highest = std::numeric_limits<Time>::max();
  for (TimeSet* set : {&computation, &communication}) {
    set->cut({lowest, window.begin});
    set->cut({window.end, highest});
  }
  TimeSet left = communication;
  for (const auto& [begin, end] : computation.parts()) left.cut({begin, end});
  return {window.end - window.begin, computation.length(), communication.length(), left.length()};
}

inline double hidden_fraction(const StepTime& time) {
  return time.comm > 0 ? double(time.comm - time.exposed) / double(time.comm) : 0;
}

inline Time most_to_win(const StepTime& time) {
  const Time exposed_at_best = time.comm > time.compute ? time.comm - time.compute : 0;
  return time.exposed - exposed_at_best;
}

struct Ping {
  Time sent = 0;
  Time arrived = 0;
  Time answered = 0;
  Time back = 0;
};

struct ClockOffset {
  Time offset = 0;
  Time uncertainty = 0;
  Time at = 0;
};

inline ClockOffset estimate_offset(std::span<const Ping> pings) {
  const auto trip = [](const Ping& p) { return p.back - p.sent - (p.answered - p.arrived); };
  std::vector<Ping> sorted(pings.begin(), pings.end());
  for (const Ping& p : sorted)
    if (trip(p) < 0 || p.answered < p.arrived) throw std::invalid_argument("impossible exchange");
  if (sorted.empty()) throw std::invalid_argument("no exchange");
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const Ping& a, const Ping& b) { return trip(a) < trip(b); });
  const Ping& best = sorted.front();
  const Time high = best.arrived - best.sent, up = (trip(best) + 1) / 2;
  return {high - up, up, best.arrived};
}

inline Time to_rank_0(Time stamp, const ClockOffset& before, const ClockOffset& after) {
  if (after.at < before.at) return to_rank_0(stamp, after, before);
  if (after.at == before.at) return stamp - before.offset;
  // Follows the line from the nearer estimate.
  const bool second = stamp - before.at > after.at - stamp;
  const ClockOffset& from = second ? after : before;
  const long double drift = (long double)(after.offset - before.offset) / (after.at - before.at);
  return stamp - from.offset - (Time)(drift * (stamp - from.at));
}

struct Lateness {
  Time waited = 0;
  Time caused = 0;
  std::int64_t times_last = 0;
};

inline std::vector<Lateness> lateness(std::span<const Time> arrivals, int ranks) {
  if (ranks < 1 || arrivals.size() % ranks != 0) throw std::invalid_argument("arrivals");
  std::vector<Lateness> out(ranks);
  for (std::size_t first = 0; first < arrivals.size(); first += ranks) {
    // Ranks are negated, so that the last element is the lowest rank that arrived last.
    std::set<std::pair<Time, int>> by_time;
    for (int r = 0; r < ranks; ++r) by_time.insert({arrivals[first + r], -r});
    const auto [end, negative] = *by_time.rbegin();
    for (int r = 0; r < ranks; ++r) {
      out[r].waited += end - arrivals[first + r];
      out[-negative].caused += end - arrivals[first + r];
    }
    if (by_time.begin()->first < end) out[-negative].times_last += 1;
  }
  return out;
}

inline int straggler(std::span<const Time> arrivals, int ranks) {
  const auto all = lateness(arrivals, ranks);
  int found = 0;
  for (int r = 1; r < ranks; ++r)
    if (all[r].caused > all[found].caused) found = r;
  return all[found].caused == 0 ? -1 : found;
}

inline int persistent_straggler(std::span<const Time> arrivals, int ranks) {
  const auto all = lateness(arrivals, ranks);
  const std::int64_t collectives = arrivals.size() / ranks;
  for (int r = 0; r < ranks; ++r)
    if (all[r].times_last > collectives / 2) return r;
  return -1;
}

}  // namespace lab15
