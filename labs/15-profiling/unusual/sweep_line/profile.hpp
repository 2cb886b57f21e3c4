// Unusual and correct: one walk along the start and end points, counting the active intervals.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <unordered_map>
#include <vector>

namespace lab15 {

using Time = std::int64_t;

struct Interval {
  Time begin = 0;
  Time end = 0;
};

// The state `what` begins (by = +1) or ends (by = -1).
struct Change {
  Time at;
  int what;
  int by;
  std::int64_t thread;
};

inline void add(std::vector<Change>& changes, Interval i, int what, std::int64_t thread = 0) {
  if (i.begin >= i.end) return;
  changes.push_back({i.begin, what, 1, thread});
  changes.push_back({i.end, what, -1, thread});
}

// Sorts the changes by time and calls visit(length, change) for each; length is the time since the
// previous change, 0 for the first.
template <class Visit>
void walk(std::vector<Change>& changes, Visit visit) {
  std::sort(changes.begin(), changes.end(),
            [](const Change& a, const Change& b) { return a.at < b.at; });
  for (std::size_t i = 0; i < changes.size(); ++i)
    visit(i == 0 ? Time{0} : changes[i].at - changes[i - 1].at, changes[i]);
}

inline Time covered(std::span<const Interval> intervals) {
  std::vector<Change> changes;
  for (const Interval& i : intervals) add(changes, i, 0);
  int open = 0;
  Time sum = 0;
  walk(changes, [&](Time length, const Change& c) {
    if (open > 0) sum += length;
    open += c.by;
  });
  return sum;
}

inline Time exposed(std::span<const Interval> communication,
                    std::span<const Interval> computation) {
  std::vector<Change> changes;
  for (const Interval& i : communication) add(changes, i, 0);
  for (const Interval& i : computation) add(changes, i, 1);
  int open[2] = {0, 0};
  Time sum = 0;
  walk(changes, [&](Time length, const Change& c) {
    if (open[0] > 0 && open[1] == 0) sum += length;
    open[c.what] += c.by;
  });
  return sum;
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
  std::vector<Change> changes;
  for (const Event& e : events)
    if (e.category != Category::frame)
      add(changes,
          {std::clamp(e.begin, window.begin, window.end),
           std::clamp(e.end, window.begin, window.end)},
          int(e.category), e.thread);
  struct Open {
    int count[3] = {0, 0, 0};
    bool computes() const { return count[0] > 0 && count[1] + count[2] == 0; }
  };
  std::unordered_map<std::int64_t, Open> threads;
  StepTime out;
  out.step = window.end - window.begin;
  int computing = 0, communicating = 0;
  walk(changes, [&](Time length, const Change& c) {
    if (computing > 0) out.compute += length;
    if (communicating > 0) out.comm += length;
    if (communicating > 0 && computing == 0) out.exposed += length;
    Open& open = threads[c.thread];
    computing -= open.computes();
    open.count[c.what] += c.by;
    computing += open.computes();
    if (c.what == int(Category::comm)) communicating += c.by;
  });
  return out;
}

inline double hidden_fraction(const StepTime& time) {
  if (time.comm == 0) return 0.0;
  return 1.0 - static_cast<double>(time.exposed) / static_cast<double>(time.comm);
}

inline Time most_to_win(const StepTime& time) {
  return std::min(time.exposed, time.compute - (time.comm - time.exposed));
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
  ClockOffset out;
  Time shortest = std::numeric_limits<Time>::max();
  for (const Ping& p : pings) {
    const Time low = p.answered - p.back, high = p.arrived - p.sent;
    if (low > high || p.arrived > p.answered) throw std::invalid_argument("impossible");
    if (high - low >= shortest) continue;
    shortest = high - low;
    out.offset = low + (high - low) / 2;
    out.uncertainty = high - out.offset;
    out.at = p.arrived;
  }
  if (pings.empty()) throw std::invalid_argument("no exchange");
  return out;
}

inline Time to_rank_0(Time stamp, const ClockOffset& before, const ClockOffset& after) {
  const __int128 gained = after.offset - before.offset;
  const __int128 length = after.at - before.at;
  Time offset = before.offset;
  if (length != 0) offset += static_cast<Time>(gained * (stamp - before.at) / length);
  return stamp - offset;
}

struct Lateness {
  Time waited = 0;
  Time caused = 0;
  std::int64_t times_last = 0;
};

inline std::vector<Lateness> lateness(std::span<const Time> arrivals, int ranks) {
  if (ranks <= 0 || arrivals.size() % static_cast<std::size_t>(ranks) != 0)
    throw std::invalid_argument("arrivals");
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<Lateness> out(n);
  for (std::size_t c = 0; c < arrivals.size(); c += n) {
    std::size_t last = 0;
    Time sum = arrivals[c];
    for (std::size_t r = 1; r < n; ++r)
      if (arrivals[c + r] > arrivals[c + last]) last = r;
    sum = 0;
    for (std::size_t r = 0; r < n; ++r) {
      const Time wait = arrivals[c + last] - arrivals[c + r];
      out[r].waited += wait;
      sum += wait;
    }
    if (sum == 0) continue;
    out[last].caused += sum;
    ++out[last].times_last;
  }
  return out;
}

inline int straggler(std::span<const Time> arrivals, int ranks) {
  Time most = 0;
  int found = -1, rank = 0;
  for (const Lateness& l : lateness(arrivals, ranks)) {
    if (l.caused > most) {
      most = l.caused;
      found = rank;
    }
    ++rank;
  }
  return found;
}

inline int persistent_straggler(std::span<const Time> arrivals, int ranks) {
  int rank = 0;
  for (const Lateness& l : lateness(arrivals, ranks)) {
    if (l.times_last * 2 * ranks > static_cast<std::int64_t>(arrivals.size())) return rank;
    ++rank;
  }
  return -1;
}

}  // namespace lab15
