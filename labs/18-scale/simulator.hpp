// Lab 18, part 2: a simulator of a job of many ranks. It plays failures, saves, restarts, spares
// and stragglers event by event, and accounts for every nanosecond:
//
//     useful + saving + restarting + lost + waiting = the elapsed time
//
// Time is in whole nanoseconds. 54 days are 4.7e15: too large for 32 bits and for a float; 54 days
// of 16,384 ranks are 7.6e19: too large for 64 bits. All failures are inputs, so the same input
// gives the same output, to the nanosecond.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "labs/kit/todo.hpp"

namespace lab18 {

using Time = std::int64_t;                     // nanoseconds
inline constexpr Time kNever = Time{1} << 62;  // longer than any run: 146 years

// Task 6. A queue of events. pop() removes and returns the event with the least key; of equal keys,
// the one pushed first. With n events, push and pop take O(log n) comparisons and copies. Key has
// operator< and no other comparison. pop() of an empty queue throws std::out_of_range.
template <class Key, class What>
class EventQueue {
 public:
  void push(Key key, What what) {
#ifdef SOLUTION
    heap_.push({std::move(key), pushed_++, std::move(what)});
#else
    (void)key, (void)what;
    kit::todo("task 6, EventQueue::push");
#endif
  }

  [[nodiscard]] bool empty() const {
#ifdef SOLUTION
    return heap_.empty();
#else
    kit::todo("task 6, EventQueue::empty");
#endif
  }

  // Returns the least key. The queue must not be empty.
  [[nodiscard]] const Key& next() const {
#ifdef SOLUTION
    return heap_.top().key;
#else
    kit::todo("task 6, EventQueue::next");
#endif
  }

  std::pair<Key, What> pop() {
#ifdef SOLUTION
    if (heap_.empty()) throw std::out_of_range("EventQueue: pop of an empty queue");
    std::pair<Key, What> first(heap_.top().key, heap_.top().what);
    heap_.pop();
    return first;
#else
    kit::todo("task 6, EventQueue::pop");
#endif
  }

 private:
#ifdef SOLUTION
  struct Entry {
    Key key;
    std::uint64_t number;  // keeps equal keys in order: a heap does not
    What what;
    bool operator<(const Entry& other) const {  // std::priority_queue: the greatest is on top
      if (other.key < key) return true;
      return !(key < other.key) && other.number < number;
    }
  };
  std::priority_queue<Entry> heap_;
  std::uint64_t pushed_ = 0;
#endif
};

// A job does `work` in total. After each `interval` of work, a save takes `save`, but there is no
// save when the work is done. After each failure, a restart takes `restart`.
struct Plan {
  Time work = 0;
  Time interval = 0;
  Time save = 0;
  Time restart = 0;
};

enum class Kind { work, save, restart, wait };

// One phase of the job, [begin, end). cut: a failure ended it before it was complete.
struct Phase {
  Kind kind = Kind::work;
  Time begin = 0;
  Time end = 0;
  bool cut = false;
};

// For tasks 7 and 9. Throws std::invalid_argument if interval is not above 0, or any other time is
// negative.
inline void check(const Plan& plan) {
#ifdef SOLUTION
  if (plan.interval <= 0) throw std::invalid_argument("Plan: interval must be above 0");
  if (plan.work < 0 || plan.save < 0 || plan.restart < 0)
    throw std::invalid_argument("Plan: no time may be negative");
#else
  (void)plan;
  kit::todo("task 7, check");
#endif
}

#ifdef SOLUTION
// The state of a job; shared by timeline() with given failures and simulate() with a cluster.
class Progress {
 public:
  explicit Progress(const Plan& plan) : plan_(plan) { check(plan); }
  [[nodiscard]] bool done() const { return kind_ == Kind::work && saved_ == plan_.work; }
  [[nodiscard]] bool waits() const { return kind_ == Kind::wait; }
  [[nodiscard]] Time end() const {
    if (kind_ == Kind::save) return begin_ + plan_.save;
    if (kind_ == Kind::restart) return begin_ + plan_.restart;
    return begin_ + std::min(plan_.interval, plan_.work - saved_);
  }
  // Ends the phase as complete and begins the next one.
  void complete() {
    const Time length = end() - begin_;
    phases.push_back({kind_, begin_, end(), false});
    begin_ = end();
    if (kind_ == Kind::work) {
      done_ = saved_ + length;
      if (done_ == plan_.work) saved_ = done_;  // no save at the end
    }
    if (kind_ == Kind::save) saved_ = done_;
    kind_ = kind_ == Kind::work && saved_ != done_ ? Kind::save : Kind::work;
  }
  // Ends the phase at `now` and begins `next`, a restart or a wait. Unsaved work is lost.
  void stop(Time now, Kind next) {
    phases.push_back({kind_, begin_, now, kind_ != Kind::wait});
    kind_ = next, begin_ = now, done_ = saved_;
  }
  std::vector<Phase> phases;

 private:
  Plan plan_;
  Kind kind_ = Kind::work;
  // Amounts of work: saved_ is in the last complete save; done_ includes unsaved work.
  Time begin_ = 0, saved_ = 0, done_ = 0;
};
#endif

// Task 7. Returns the phases of a job that fails at the given moments, until its work is done. The
// moments are ascending and may repeat. Later failures are ignored.
//
// A phase that ends at t is complete even if a failure happens at t; a phase that begins at t is
// cut at t. Every phase that begins is listed, even with length 0. A failure during a restart
// starts another restart.
inline std::vector<Phase> timeline(const Plan& plan, std::span<const Time> failures) {
#ifdef SOLUTION
  Progress job(plan);
  std::size_t next = 0;
  while (!job.done())
    if (next < failures.size() && failures[next] < job.end())
      job.stop(failures[next++], Kind::restart);
    else
      job.complete();
  return std::move(job.phases);
#else
  (void)plan, (void)failures;
  kit::todo("task 7, timeline");
#endif
}

// Where the time went. useful: work that was kept. lost: work that was thrown away, whether or not
// its phase was cut, and saves that were cut. saving: complete saves. restarting: all restarts, cut
// or not. waiting: for a machine.
struct Account {
  Time useful = 0;
  Time saving = 0;
  Time restarting = 0;
  Time lost = 0;
  Time waiting = 0;
};

// Task 8. Returns the account of a finished job's phases.
inline Account account(std::span<const Phase> phases) {
#ifdef SOLUTION
  Account sum;
  Time unsaved = 0;
  for (const Phase& phase : phases) {
    const Time length = phase.end - phase.begin;
    if (phase.kind == Kind::restart) sum.restarting += length;
    if (phase.kind == Kind::wait) sum.waiting += length;
    if (phase.kind == Kind::work) unsaved += length;
    if (phase.kind == Kind::save && !phase.cut) {
      sum.saving += length;
      sum.useful += unsaved;
      unsaved = 0;
    }
    if (!phase.cut || phase.kind == Kind::restart) continue;
    sum.lost += unsaved + (phase.kind == Kind::save ? length : 0);
    unsaved = 0;
  }
  sum.useful += unsaved;
  return sum;
#else
  (void)phases;
  kit::todo("task 8, account");
#endif
}

// Task 8. Returns the cost of `time` on `ranks` GPUs, at most a million, in whole GPU-hours,
// rounded down. The product of the two need not fit into 64 bits.
inline std::int64_t gpu_hours(Time time, std::int64_t ranks) {
#ifdef SOLUTION
  constexpr Time kHour = 3'600'000'000'000;
  return time / kHour * ranks + time % kHour * ranks / kHour;  // time * ranks may need 67 bits
#else
  (void)time, (void)ranks;
  kit::todo("task 8, gpu_hours");
#endif
}

// A job needs `machines` machines at the same time, numbered from 0; `spares` more stand by, with
// the next numbers. A failed machine returns to the spares after `repair`.
struct Cluster {
  int machines = 1;
  int spares = 0;
  Time repair = 0;
};

// Returns how long a machine lasts from the moment at which it joins the job, 1 to kNever. Every
// call draws a new life: call it once each time a machine joins.
using Lives = std::function<Time(int machine)>;

struct Failure {
  Time at = 0;
  int machine = 0;
  int substitute = -1;  // the spare that immediately replaced it; -1 if there was none
};

struct Run {
  std::vector<Phase> phases;
  std::vector<Failure> failures;
};

// Task 9. Runs the job on a cluster. At 0, machines 0, 1, ... join, in this order. When a machine
// fails, the spare that has waited longest joins immediately (initially the one with the lowest
// number), and a restart begins. If there is no spare, the job waits until repairs have filled all
// places, and a restart begins. Machines fail while they are in the job, whether it works, saves,
// restarts or waits; spares do not fail.
//
// Order of events at the same moment: the phase that ends is completed first, repairs end second,
// and machines fail last. Simultaneous repairs end in the order in which they began, and machines
// fail in the order in which they joined. Nothing happens at or after the moment when the work is
// done. O(log machines) per failure: no event may look at all machines. Throws
// std::invalid_argument as check() does, and if machines is below 1 or any number is negative.
inline Run simulate(const Plan& plan, const Cluster& cluster, const Lives& lives) {
#ifdef SOLUTION
  if (cluster.machines < 1 || cluster.spares < 0 || cluster.repair < 0)
    throw std::invalid_argument("Cluster: at least 1 machine, and no number below 0");
  Progress job(plan);
  std::vector<Failure> failures;
  enum What { repaired, fails };  // order of simultaneous events
  EventQueue<std::pair<Time, What>, int> events;
  std::deque<int> spares;
  int missing = 0;
  const auto join = [&](Time now, int machine) {
    events.push({now + lives(machine), fails}, machine);
  };
  for (int m = 0; m < cluster.machines; ++m) join(0, m);
  for (int m = 0; m < cluster.spares; ++m) spares.push_back(cluster.machines + m);
  while (!job.done()) {
    if (!job.waits() && job.end() <= events.next().first) {
      job.complete();
      continue;
    }
    const auto [key, machine] = events.pop();
    const auto [now, what] = key;
    if (what == repaired) {
      if (missing == 0) {
        spares.push_back(machine);
        continue;
      }
      join(now, machine);
      if (--missing == 0) job.stop(now, Kind::restart);
      continue;
    }
    events.push({now + cluster.repair, repaired}, machine);
    failures.push_back({now, machine, spares.empty() ? -1 : spares.front()});
    if (!spares.empty()) {
      join(now, spares.front());
      spares.pop_front();
      job.stop(now, Kind::restart);
    } else if (missing++ == 0) {
      job.stop(now, Kind::wait);
    }
  }
  return {std::move(job.phases), std::move(failures)};
#else
  (void)plan, (void)cluster, (void)lives;
  kit::todo("task 9, simulate");
#endif
}

// Task 10. Returns the time of all steps if the ranks wait for each other: step s takes as long as
// the slowest of times[s * ranks + r], r = 0 .. ranks - 1.
inline Time synchronous(std::span<const Time> times, int ranks) {
#ifdef SOLUTION
  Time sum = 0;
  for (const std::size_t n = std::size_t(ranks); times.size() >= n; times = times.subspan(n))
    sum += *std::max_element(times.begin(), times.begin() + ranks);
  return sum;
#else
  (void)times, (void)ranks;
  kit::todo("task 10, synchronous");
#endif
}

// An update of the parameters by one rank's gradient. staleness: the number of updates by other
// ranks since this rank pulled the parameters.
struct Update {
  Time at = 0;
  int rank = 0;
  std::int64_t staleness = 0;
};

// Task 10. Applies the same gradients without waiting: rank r pulls at 0, computes its s-th
// gradient in times[s * ranks + r], pushes it, pulls at the same moment, and continues until it has
// done all its steps. Returns all updates in order; at the same moment the lowest rank pushes
// first.
inline std::vector<Update> asynchronous(std::span<const Time> times, int ranks) {
#ifdef SOLUTION
  EventQueue<std::pair<Time, int>, std::size_t> events;
  std::vector<std::int64_t> pulled(static_cast<std::size_t>(ranks), 0);
  std::vector<Update> updates;
  for (int r = 0; r < ranks && !times.empty(); ++r) events.push({times[std::size_t(r)], r}, 0);
  while (!events.empty()) {
    const auto [key, step] = events.pop();
    const auto [now, rank] = key;
    std::int64_t& version = pulled[std::size_t(rank)];
    updates.push_back({now, rank, std::int64_t(updates.size()) - version});
    version = std::int64_t(updates.size());
    const std::size_t next = (step + 1) * std::size_t(ranks) + std::size_t(rank);
    if (next < times.size()) events.push({now + times[next], rank}, step + 1);
  }
  return updates;
#else
  (void)times, (void)ranks;
  kit::todo("task 10, asynchronous");
#endif
}

// Task 10. A slow rank makes every step last `slow`; without that rank, a step lasts `fast`.
// Removing the rank costs a restart of length `restart`, and the `redo` steps since the last save
// are repeated without the rank. Returns the least number of remaining steps (without the repeated
// ones) from which the job ends at least 1 ns earlier; -1 if there is none.
inline std::int64_t worth_from(Time slow, Time fast, Time restart, std::int64_t redo) {
#ifdef SOLUTION
  if (slow <= fast) return -1;
  return (restart + redo * fast) / (slow - fast) + 1;
#else
  (void)slow, (void)fast, (void)restart, (void)redo;
  kit::todo("task 10, worth_from");
#endif
}

}  // namespace lab18
