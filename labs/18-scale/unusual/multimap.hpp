// Unusual and correct: the queue is a multimap, which keeps equal keys in order; the timeline is
// played from one failure to the next; the account walks backwards; the cluster keeps failures and
// repairs in two maps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <span>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

namespace lab18 {

using Time = std::int64_t;
inline constexpr Time kNever = Time{1} << 62;

template <class Key, class What>
class EventQueue {
 public:
  void push(Key key, What what) { map_.emplace(std::move(key), std::move(what)); }
  [[nodiscard]] bool empty() const { return map_.empty(); }
  [[nodiscard]] const Key& next() const { return map_.begin()->first; }
  std::pair<Key, What> pop() {
    if (map_.empty()) throw std::out_of_range("empty");
    const auto node = map_.extract(map_.begin());
    return {node.key(), node.mapped()};
  }

 private:
  std::multimap<Key, What> map_;
};

struct Plan {
  Time work = 0, interval = 0, save = 0, restart = 0;
};
enum class Kind { work, save, restart, wait };
struct Phase {
  Kind kind = Kind::work;
  Time begin = 0, end = 0;
  bool cut = false;
};

inline void check(const Plan& p) {
  if (p.interval < 1 || std::min({p.work, p.save, p.restart}) < 0)
    throw std::invalid_argument("no such plan");
}

// Appends the phases from `now` until `stop` and updates `saved`. Returns true if the job is done.
inline bool play(const Plan& p, Time now, Time stop, Time& saved, bool restart,
                 std::vector<Phase>& out) {
  const auto lasts = [&](Kind kind, Time length) {
    const bool cut = length > stop - now;  // compares without a sum that could overflow
    out.push_back({kind, now, cut ? stop : now + length, cut});
    now = out.back().end;
    return !cut;
  };
  if (restart && !lasts(Kind::restart, p.restart)) return false;
  while (p.work - saved > p.interval) {
    if (!lasts(Kind::work, p.interval) || !lasts(Kind::save, p.save)) return false;
    saved += p.interval;
  }
  return p.work == saved || lasts(Kind::work, p.work - saved);
}

inline std::vector<Phase> timeline(const Plan& plan, std::span<const Time> failures) {
  check(plan);
  std::vector<Phase> out;
  Time now = 0, saved = 0;
  bool restart = false;
  for (const Time at : failures) {
    if (play(plan, now, at, saved, restart, out)) return out;
    now = at, restart = true;
  }
  play(plan, now, std::numeric_limits<Time>::max(), saved, restart, out);
  return out;
}

struct Account {
  Time useful = 0, saving = 0, restarting = 0, lost = 0, waiting = 0;
};

inline Account account(std::span<const Phase> phases) {
  Account a;
  bool kept = true;  // whether the work before this phase was kept
  for (auto p = phases.rbegin(); p != phases.rend(); ++p) {
    const Time length = p->end - p->begin;
    switch (p->kind) {
      case Kind::wait:
        a.waiting += length;
        break;
      case Kind::restart:
        a.restarting += length;
        break;
      case Kind::save:
        (p->cut ? a.lost : a.saving) += length;
        kept = !p->cut;
        break;
      case Kind::work:
        if (p->cut) kept = false;
        (kept ? a.useful : a.lost) += length;
    }
  }
  return a;
}

inline std::int64_t gpu_hours(Time time, std::int64_t ranks) {
  const Time hour = Time{3600} * 1000 * 1000 * 1000;
  std::int64_t hours = 0, rest = 0;  // multiplies bit by bit, from the highest bit of ranks
  for (int bit = 40; bit >= 0; --bit) {
    hours = 2 * hours + 2 * rest / hour, rest = 2 * rest % hour;
    if ((ranks >> bit) & 1)
      hours += time / hour + (rest + time % hour) / hour, rest = (rest + time % hour) % hour;
  }
  return hours;
}

struct Cluster {
  int machines = 1, spares = 0;
  Time repair = 0;
};
using Lives = std::function<Time(int machine)>;
struct Failure {
  Time at = 0;
  int machine = 0, substitute = -1;
};
struct Run {
  std::vector<Phase> phases;
  std::vector<Failure> failures;
};

inline Run simulate(const Plan& plan, const Cluster& c, const Lives& lives) {
  check(plan);
  if (c.machines < 1 || c.spares < 0 || c.repair < 0)
    throw std::invalid_argument("no such cluster");
  Run run;
  std::multimap<Time, int> failing, repairing;
  std::list<int> idle;
  int places = c.machines;  // empty places
  Time now = 0, saved = 0, since = 0;
  for (int m = 0; m < c.machines + c.spares; ++m) idle.push_back(m);
  const auto fill = [&] {
    for (; places > 0 && !idle.empty(); --places, idle.pop_front())
      failing.emplace(now + lives(idle.front()), idle.front());
  };
  fill();
  for (bool restart = false;; restart = true) {
    // All places are taken: the job runs until the first machine fails.
    now = failing.begin()->first;
    if (play(plan, since, now, saved, restart, run.phases)) return run;
    const auto repaired = [&] {
      idle.push_back(repairing.begin()->second);
      repairing.erase(repairing.begin());
    };
    while (!repairing.empty() && repairing.begin()->first <= now) repaired();
    since = now;
    bool waited = false;
    do {
      if (!failing.empty() &&
          (repairing.empty() || failing.begin()->first < repairing.begin()->first)) {
        const auto [at, machine] = *failing.begin();
        failing.erase(failing.begin());
        now = at;
        repairing.emplace(now + c.repair, machine);
        run.failures.push_back({now, machine, idle.empty() ? -1 : idle.front()});
        ++places;
        waited = waited || idle.empty();
      } else {
        now = repairing.begin()->first;
        repaired();
      }
      fill();
    } while (places > 0);
    if (waited) run.phases.push_back({Kind::wait, since, now, false});
    since = now;
  }
}

inline Time synchronous(std::span<const Time> times, int ranks) {
  Time sum = 0, most = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    most = std::max(most, times[i]);
    if ((i + 1) % std::size_t(ranks) == 0) sum += std::exchange(most, 0);
  }
  return sum;
}

struct Update {
  Time at = 0;
  int rank = 0;
  std::int64_t staleness = 0;
};

// Sorts all pushes first, and derives each staleness from the rank's previous push.
inline std::vector<Update> asynchronous(std::span<const Time> times, int ranks) {
  std::vector<std::tuple<Time, int, std::size_t>> pushes;
  for (int r = 0; r < ranks; ++r) {
    Time at = 0;
    for (std::size_t i = std::size_t(r), s = 0; i < times.size(); i += std::size_t(ranks), ++s)
      pushes.emplace_back(at += times[i], r, s);
  }
  std::sort(pushes.begin(), pushes.end());
  std::map<int, std::int64_t> before;  // rank -> number of pushes up to its last one
  std::vector<Update> updates;
  for (const auto& [at, rank, step] : pushes) {
    const auto number = std::int64_t(updates.size());
    updates.push_back({at, rank, number - before[rank]});
    before[rank] = number + 1;
  }
  return updates;
}

inline std::int64_t worth_from(Time slow, Time fast, Time restart, std::int64_t redo) {
  if (fast >= slow) return -1;
  const auto pays = [&](std::int64_t n) { return restart + redo * fast < n * (slow - fast); };
  std::int64_t low = 0, high = (restart + redo * fast) / (slow - fast) +
                               2;  // invariant: pays(high), not pays(low)
  while (high - low > 1) (pays((low + high) / 2) ? high : low) = (low + high) / 2;
  return high;
}

}  // namespace lab18
