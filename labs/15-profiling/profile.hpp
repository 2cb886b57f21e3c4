// Lab 15, part 1: reading the times of a step out of a trace.
//
//   thread 1  |--------- compute ---------|~~ wait ~~|- compute -|
//   thread 2         |== comm ==|     |==== comm ====|
//                                         |==========|             exposed: no thread computes
//
// A trace is an unordered list of events. Times are whole nanoseconds, of either sign and below
// 2^62 (a clock that counts from 1970 shows 1.8e18): too large for a double, which has 53 bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "labs/kit/todo.hpp"

namespace lab15 {

using Time = std::int64_t;  // nanoseconds

// [begin, end). Empty if end <= begin.
struct Interval {
  Time begin = 0;
  Time end = 0;
};

#ifdef SOLUTION
// Returns the union as a sorted list of disjoint, non-empty intervals.
inline std::vector<Interval> unite(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> out;
  for (const Interval& i : intervals) {
    if (i.end <= i.begin) continue;
    if (!out.empty() && i.begin <= out.back().end)
      out.back().end = std::max(out.back().end, i.end);
    else
      out.push_back(i);
  }
  return out;
}

// Returns a without b. Both must be sorted and disjoint, as unite() returns them.
inline std::vector<Interval> subtract(const std::vector<Interval>& a,
                                      const std::vector<Interval>& b) {
  std::vector<Interval> out;
  auto next = b.begin();
  for (Interval rest : a) {
    while (next != b.end() && next->end <= rest.begin) ++next;
    for (auto hole = next; hole != b.end() && hole->begin < rest.end; ++hole) {
      if (rest.begin < hole->begin) out.push_back({rest.begin, hole->begin});
      rest.begin = hole->end;
    }
    if (rest.begin < rest.end) out.push_back(rest);
  }
  return out;
}
#endif

// Task 1. Returns the time that is in at least one of the intervals, in O(n log n). They may
// overlap, contain each other, touch, be equal or empty, and are not sorted.
inline Time covered(std::span<const Interval> intervals) {
#ifdef SOLUTION
  Time sum = 0;
  for (const Interval& i : unite({intervals.begin(), intervals.end()})) sum += i.end - i.begin;
  return sum;
#else
  (void)intervals;
  kit::todo("task 1, covered");
#endif
}

// Task 2. Returns the time that is in an interval of `communication` and in none of `computation`.
// O(n log n).
inline Time exposed(std::span<const Interval> communication,
                    std::span<const Interval> computation) {
#ifdef SOLUTION
  std::vector<Interval> both(communication.begin(), communication.end());
  both.insert(both.end(), computation.begin(), computation.end());
  return covered(both) - covered(computation);
#else
  (void)communication, (void)computation;
  kit::todo("task 2, exposed");
#endif
}

enum class Category {
  compute,  // arithmetic: forward, backward, the optimizer
  comm,     // a collective in progress
  wait,     // this thread waits, for a collective or anything else
  frame     // encloses other events (a step); ignored in all sums
};

struct Event {
  Category category = Category::frame;
  std::int64_t thread = 0;  // the system's thread id: any number
  Time begin = 0;
  Time end = 0;
};

struct StepTime {
  Time step = 0;     // the length of the window
  Time compute = 0;  // some thread computes
  Time comm = 0;     // a collective is in progress
  Time exposed = 0;  // a collective is in progress, and no thread computes
};

// Task 3. Only time within the window counts, so clip events that reach beyond it. Events of one
// thread nest: backward() waits for the last bucket before it returns, so the wait is inside a
// compute event. A thread computes while it is in one of its compute events and in none of its comm
// or wait events. O(n log n).
inline StepTime measure(std::span<const Event> events, Interval window) {
#ifdef SOLUTION
  std::map<std::int64_t, std::vector<Interval>> computes, stands;  // keyed by thread
  std::vector<Interval> computation, communication;
  for (const Event& e : events) {
    const Interval part{std::max(e.begin, window.begin), std::min(e.end, window.end)};
    if (e.category == Category::compute) computes[e.thread].push_back(part);
    if (e.category == Category::comm) communication.push_back(part);
    if (e.category == Category::comm || e.category == Category::wait)
      stands[e.thread].push_back(part);
  }
  for (const auto& [thread, parts] : computes)
    for (const Interval& i : subtract(unite(parts), unite(stands[thread])))
      computation.push_back(i);
  return {window.end - window.begin, covered(computation), covered(communication),
          exposed(communication, computation)};
#else
  (void)events, (void)window;
  kit::todo("task 3, measure");
#endif
}

// Task 3. Returns the share of the communication that is not exposed; 0 if there is no
// communication.
inline double hidden_fraction(const StepTime& time) {
#ifdef SOLUTION
  return time.comm == 0 ? 0 : double(time.comm - time.exposed) / double(time.comm);
#else
  (void)time;
  kit::todo("task 3, hidden_fraction");
#endif
}

// Task 3. Returns how much shorter the step would become if as much communication as possible were
// hidden. Computation can hide at most its own length.
inline Time most_to_win(const StepTime& time) {
#ifdef SOLUTION
  return time.exposed - std::max<Time>(0, time.comm - time.compute);
#else
  (void)time;
  kit::todo("task 3, most_to_win");
#endif
}

// Rank 0 asks another rank for its time, and each records times on its own clock:
//
//   rank 0's clock     sent ----.                         .---> back
//   the rank's clock             '--> arrived   answered -'
struct Ping {
  Time sent = 0;
  Time arrived = 0;
  Time answered = 0;
  Time back = 0;
};

struct ClockOffset {
  Time offset = 0;       // the rank's clock - rank 0's
  Time uncertainty = 0;  // largest possible error of `offset`
  Time at = 0;           // time of the estimate, on the rank's clock
};

// Task 4. No message arrives before it was sent, so each exchange gives two bounds on the offset.
// Their distance is the round trip minus the time that the rank took to answer. The exchange with
// the shortest distance decides (of several, the first). `offset` is the midpoint of its bounds,
// with half a nanosecond rounded down (even below 0). `uncertainty` is the distance from `offset`
// to the farther bound. `at` is `arrived` of that exchange. Throws std::invalid_argument if there
// is no exchange, or if any is impossible: answered before it arrived, or with a negative
// distance.
inline ClockOffset estimate_offset(std::span<const Ping> pings) {
#ifdef SOLUTION
  if (pings.empty()) throw std::invalid_argument("estimate_offset: no exchange");
  const auto trip = [](const Ping& p) { return (p.back - p.sent) - (p.answered - p.arrived); };
  const Ping* best = &pings[0];
  for (const Ping& p : pings) {
    if (p.answered < p.arrived || trip(p) < 0)
      throw std::invalid_argument("estimate_offset: an impossible exchange");
    if (trip(p) < trip(*best)) best = &p;
  }
  const Time half = trip(*best) / 2;
  return {best->answered - best->back + half, trip(*best) - half, best->arrived};
#else
  (void)pings;
  kit::todo("task 4, estimate_offset");
#endif
}

// Task 4. Returns the time on rank 0's clock at which the rank's clock shows `stamp`. No two clocks
// run at the same rate, so the offset was estimated twice. The offset at any other time, even
// before or after both estimates, follows from the straight line through them. If both have the
// same `at`, only `before` counts. Accurate to 1 ns. (The two offsets differ by less than an hour.)
inline Time to_rank_0(Time stamp, const ClockOffset& before, const ClockOffset& after) {
#ifdef SOLUTION
  if (before.at == after.at) return stamp - before.offset;
  // A double has enough bits for these differences, but not for the stamps.
  const double rate = double(after.offset - before.offset) / double(after.at - before.at);
  return stamp - before.offset - Time(rate * double(stamp - before.at));
#else
  (void)stamp, (void)before, (void)after;
  kit::todo("task 4, to_rank_0");
#endif
}

struct Lateness {               // per rank
  Time waited = 0;              // time that it waited for others
  Time caused = 0;              // total time that others waited for it
  std::int64_t times_last = 0;  // number of collectives in which others waited for it
};

// Task 5. arrivals[c * ranks + r] is the time at which rank r arrived at collective c, all on one
// clock. Each rank that has arrived waits until the last rank arrives. All of that waiting is
// charged to the last rank: the lowest of several that arrive last together. Throws
// std::invalid_argument if ranks is below 1 or does not divide the number of arrivals.
inline std::vector<Lateness> lateness(std::span<const Time> arrivals, int ranks) {
#ifdef SOLUTION
  if (ranks < 1 || arrivals.size() % std::size_t(ranks) != 0)
    throw std::invalid_argument("lateness: not an arrival of each rank at each collective");
  std::vector<Lateness> all(static_cast<std::size_t>(ranks));
  for (; !arrivals.empty(); arrivals = arrivals.subspan(all.size())) {
    const auto here = arrivals.first(all.size());
    const auto last = std::max_element(here.begin(), here.end());  // the first of several
    Time waited = 0;
    for (std::size_t r = 0; r < all.size(); ++r) {
      all[r].waited += *last - here[r];
      waited += *last - here[r];
    }
    Lateness& late = all[std::size_t(last - here.begin())];
    late.caused += waited;
    late.times_last += waited > 0;
  }
  return all;
#else
  (void)arrivals, (void)ranks;
  kit::todo("task 5, lateness");
#endif
}

// Task 5. Returns the rank for which others waited longest in total (of several, the lowest), or -1
// if no rank waited.
inline int straggler(std::span<const Time> arrivals, int ranks) {
#ifdef SOLUTION
  const std::vector<Lateness> all = lateness(arrivals, ranks);
  const auto most =
      std::max_element(all.begin(), all.end(),
                       [](const Lateness& a, const Lateness& b) { return a.caused < b.caused; });
  return most->caused > 0 ? int(most - all.begin()) : -1;
#else
  (void)arrivals, (void)ranks;
  kit::todo("task 5, straggler");
#endif
}

// Task 5. A single long pause makes a rank the straggler, even long afterwards. This function
// returns the rank for which others waited in more than half of the collectives; -1 if there is
// none.
inline int persistent_straggler(std::span<const Time> arrivals, int ranks) {
#ifdef SOLUTION
  const std::vector<Lateness> all = lateness(arrivals, ranks);
  const auto collectives = std::int64_t(arrivals.size() / all.size());
  for (std::size_t r = 0; r < all.size(); ++r)
    if (2 * all[r].times_last > collectives) return int(r);
  return -1;
#else
  (void)arrivals, (void)ranks;
  kit::todo("task 5, persistent_straggler");
#endif
}

}  // namespace lab15
