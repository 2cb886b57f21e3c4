// Part 2 of the driver: runs the student's simulator.
#include LAB18_MUSEUM
#include LAB18_SIMULATOR

#include "labs/kit/driver.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "labs/18-scale/refusing.hpp"

using lab18::Account;
using lab18::Phase;
using lab18::Plan;
using lab18::Time;

namespace {

Plan plan_of(const Integers& numbers, std::size_t i) {
  return {numbers[4 * i], numbers[4 * i + 1], numbers[4 * i + 2], numbers[4 * i + 3]};
}

Integers rows_of(const std::vector<Phase>& phases) {
  Integers rows;
  rows.reserve(4 * phases.size());
  for (const Phase& p : phases) rows.insert(rows.end(), {int(p.kind), p.begin, p.end, p.cut});
  return rows;
}

// Reports at most 12,000 numbers, and a digest of all of them: h = 31 h + number, modulo 2^64.
void put_long(kit::Observation& out, const char* name, Integers numbers) {
  constexpr std::size_t kMost = 12000;
  std::uint64_t digest = 0;
  for (const std::int64_t n : numbers) digest = 31 * digest + std::uint64_t(n);
  out.put(std::string(name) + ".count", numbers.size());
  out.put(std::string(name) + ".digest", std::int64_t(digest));
  numbers.resize(std::min(numbers.size(), kMost));
  out.put(name, numbers);
}

std::vector<Phase> phases_of(const Integers& rows) {
  std::vector<Phase> phases;
  for (std::size_t i = 0; i + 4 <= rows.size(); i += 4)
    phases.push_back({lab18::Kind(rows[i]), rows[i + 1], rows[i + 2], rows[i + 3] != 0});
  return phases;
}

void append(Integers& rows, const Account& a) {
  rows.insert(rows.end(), {a.useful, a.saving, a.restarting, a.lost, a.waiting});
}

// A key that counts comparisons and copies, and supports nothing else.
struct Key {
  static inline std::int64_t work = 0;
  std::int64_t value = 0;
  Key() = default;
  explicit Key(std::int64_t v) : value(v) {}
  Key(const Key& other) : value(other.value) { ++work; }
  Key& operator=(const Key& other) {
    ++work;
    value = other.value;
    return *this;
  }
  friend bool operator<(const Key& a, const Key& b) {
    ++work;
    return a.value < b.value;
  }
};

}  // namespace

// Operates on two queues. Operation k >= 0: push key k, with the number of the operation as its
// event, into queue (number modulo 2); -1, -2: pop queue 0, 1.
KIT_SCENARIO(queue) {
  lab18::EventQueue<Key, std::int64_t> queues[2];
  Integers popped;
  std::int64_t number = 0;
  Key::work = 0;
  for (const std::int64_t operation : in.integers("operations")) {
    if (operation >= 0) {
      queues[number & 1].push(Key(operation), number);
    } else {
      auto& queue = queues[-operation - 1];
      const std::int64_t least = queue.next().value;
      const auto [key, what] = queue.pop();
      popped.insert(popped.end(), {least, key.value, what});
    }
    ++number;
  }
  out.put("popped", popped);
  out.put("work", Key::work);
  out.put("empty", Integers{queues[0].empty(), queues[1].empty()});
  lab18::EventQueue<int, std::string> empty;
  bool threw = false;
  try {
    empty.push(1, "a");
    empty.pop();
    empty.pop();
  } catch (const std::out_of_range&) {
    threw = true;
  }
  out.put("refuses", threw);
}

// Runs several jobs. `plans` has four numbers per job. `failures` has the failures of all jobs,
// concatenated, counts[i] of them for job i.
KIT_SCENARIO(timelines) {
  const Integers plans = in.integers("plans"), counts = in.integers("counts");
  const Integers failures = in.integers("failures");
  Integers rows, lengths;
  std::size_t from = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::span<const Time> own(failures.data() + from, std::size_t(counts[i]));
    from += std::size_t(counts[i]);
    const Integers mine = rows_of(lab18::timeline(plan_of(plans, i), own));
    lengths.push_back(std::int64_t(mine.size() / 4));
    rows.insert(rows.end(), mine.begin(), mine.end());
  }
  out.put("rows", rows);
  out.put("lengths", lengths);
}

// Computes the accounts of the judge's phases; lengths[i] phases belong to account i.
KIT_SCENARIO(accounts) {
  const std::vector<Phase> phases = phases_of(in.integers("rows"));
  std::size_t from = 0;
  Integers sums;
  for (const std::int64_t length : in.integers("lengths")) {
    append(sums, lab18::account(std::span(phases).subspan(from, std::size_t(length))));
    from += std::size_t(length);
  }
  out.put("sums", sums);
}

KIT_SCENARIO(gpu_hours) {
  const Integers times = in.integers("times"), ranks = in.integers("ranks");
  Integers hours;
  for (std::size_t i = 0; i < times.size(); ++i)
    hours.push_back(lab18::gpu_hours(times[i], ranks[i]));
  out.put("hours", hours);
}

// Runs a cluster whose machine m fails lives[m * draws + k] ns after it joins, where k counts its
// joins from 0; from join number `draws` on, it never fails.
KIT_SCENARIO(cluster) {
  const lab18::Cluster cluster{int(in.integer("machines")), int(in.integer("spares")),
                               in.integer("repair")};
  const Integers lives = in.integers("lives");
  const auto draws = std::size_t(in.integer("draws"));
  std::vector<std::size_t> drawn(std::size_t(cluster.machines + cluster.spares));
  Integers order;
  // A previous run, which leaves two spares and a machine in repair, must not influence the next.
  (void)lab18::simulate({10, 5, 1, 1}, {2, 3, 100},
                        [](int machine) { return machine == 0 ? 3 : lab18::kNever; });
  const lab18::Run run =
      lab18::simulate(plan_of(in.integers("plan"), 0), cluster, [&](int machine) {
        const auto m = std::size_t(machine);
        if (m >= drawn.size()) throw kit::Misuse{"no machine " + std::to_string(machine)};
        if (order.size() < 1000) order.push_back(machine);
        return drawn[m] < draws ? lives[m * draws + drawn[m]++] : lab18::kNever;
      });
  if (in.integer("rows", 1) != 0) out.put("rows", rows_of(run.phases));
  Integers failures, sum;
  for (const lab18::Failure& f : run.failures)
    failures.insert(failures.end(), {f.at, f.machine, f.substitute});
  append(sum, lab18::account(run.phases));
  put_long(out, "failures", failures);
  out.put("joined", order);
  out.put("sum", sum);
  out.put("end", run.phases.empty() ? 0 : run.phases.back().end);
}

KIT_SCENARIO(refusals) {
  const Integers plans = in.integers("plans"), clusters = in.integers("clusters");
  Integers jobs, runs;
  const auto forever = [](int) { return lab18::kNever; };
  for (std::size_t i = 0; 4 * i < plans.size(); ++i) {
    jobs.push_back(refuses([&] { lab18::timeline(plan_of(plans, i), {}); }));
    runs.push_back(refuses([&] { lab18::simulate(plan_of(plans, i), {}, forever); }));
  }
  out.put("jobs", jobs);
  out.put("runs", runs);
  Integers of_clusters;
  for (std::size_t i = 0; 3 * i < clusters.size(); ++i)
    of_clusters.push_back(refuses([&] {
      const lab18::Cluster c{int(clusters[3 * i]), int(clusters[3 * i + 1]), clusters[3 * i + 2]};
      lab18::simulate({10, 5, 1, 1}, c, forever);
    }));
  out.put("clusters", of_clusters);
}

// Runs several tables of times[step * ranks + rank] in one process.
KIT_SCENARIO(steps) {
  const Integers times = in.integers("times"), ranks = in.integers("ranks");
  const Integers counts = in.integers("counts");
  const bool wait = in.integer("wait") != 0;
  Integers together, updates, lengths;
  std::size_t from = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::span<const Time> own(times.data() + from, std::size_t(counts[i]));
    from += std::size_t(counts[i]);
    if (wait) {
      together.push_back(lab18::synchronous(own, int(ranks[i])));
      continue;
    }
    const std::vector<lab18::Update> all = lab18::asynchronous(own, int(ranks[i]));
    for (const lab18::Update& u : all) updates.insert(updates.end(), {u.at, u.rank, u.staleness});
    lengths.push_back(std::int64_t(all.size()));
  }
  out.put("together", together);
  put_long(out, "updates", updates);
  out.put("lengths", lengths);
}

// cases: rows of slow, fast, restart, redo.
KIT_SCENARIO(worth) {
  const Integers x = in.integers("cases");
  Integers from;
  for (std::size_t i = 0; i + 4 <= x.size(); i += 4)
    from.push_back(lab18::worth_from(x[i], x[i + 1], x[i + 2], x[i + 3]));
  out.put("from", from);
}

// Runs many trials of one plan, and reports when each is done. `failures` has the failures of all
// trials, concatenated, counts[t] of them for trial t.
KIT_SCENARIO(trials) {
  const Plan plan = plan_of(in.integers("plan"), 0);
  const Integers failures = in.integers("failures");
  Integers ends;
  std::size_t from = 0;
  for (const std::int64_t count : in.integers("counts")) {
    const std::vector<Phase> phases =
        lab18::timeline(plan, std::span(failures).subspan(from, std::size_t(count)));
    from += std::size_t(count);
    ends.push_back(phases.empty() ? 0 : phases.back().end);
  }
  out.put("ends", ends);
}

// Reports the student's cases.
KIT_SCENARIO(museum) {
  Integers plans, failures, counts, expected;
  for (const lab18::Case& c : lab18::cases()) {
    plans.insert(plans.end(), {c.plan.work, c.plan.interval, c.plan.save, c.plan.restart});
    failures.insert(failures.end(), c.failures.begin(), c.failures.end());
    counts.push_back(std::int64_t(c.failures.size()));
    append(expected, c.expected);
  }
  out.put("plans", plans);
  out.put("failures", failures);
  out.put("counts", counts);
  out.put("expected", expected);
}
