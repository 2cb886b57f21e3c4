// Calls the student's functions, many cases per process.
#include LAB15_PROFILE
#include LAB15_TUNING

#include "labs/kit/driver.hpp"

#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Integers = std::vector<std::int64_t>;

// A request's numbers, as rows of `width` numbers. Each case takes its own count of rows in turn.
template <class Row>
class Cases {
 public:
  template <class Make>
  Cases(const kit::Request& in, const std::string& name, std::size_t width, Make make)
      : counts_(in.integers(name + ".counts")) {
    const Integers numbers = in.integers(name);
    for (std::size_t i = 0; i + width <= numbers.size(); i += width)
      rows_.push_back(make(&numbers[i]));
  }
  [[nodiscard]] std::size_t size() const { return counts_.size(); }
  std::span<const Row> next() {
    const std::span<const Row> all(rows_);
    const auto mine = all.subspan(at_, std::size_t(counts_[case_]));
    at_ += std::size_t(counts_[case_++]);
    return mine;
  }

 private:
  Integers counts_;
  std::vector<Row> rows_;
  std::size_t at_ = 0, case_ = 0;
};

lab15::Interval interval_of(const std::int64_t* n) { return {n[0], n[1]}; }
lab15::Event event_of(const std::int64_t* n) { return {lab15::Category(n[0]), n[1], n[2], n[3]}; }
lab15::Ping ping_of(const std::int64_t* n) { return {n[0], n[1], n[2], n[3]}; }
lab15::Gradient gradient_of(const std::int64_t* n) { return {n[0], n[1]}; }
lab15::Kernel kernel_of(const std::int64_t* n) { return {n[0], n[1], n[2]}; }
std::int64_t number_of(const std::int64_t* n) { return *n; }

// True if the call throws std::invalid_argument; other exceptions propagate.
template <class Call>
bool refuses(Call call) {
  try {
    (void)call();
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

void append(Integers& out, const lab15::StepTime& t) {
  out.insert(out.end(), {t.step, t.compute, t.comm, t.exposed});
}

}  // namespace

KIT_SCENARIO(covered) {
  Cases<lab15::Interval> sets(in, "sets", 2, interval_of);
  Integers results;
  for (std::size_t i = 0; i < sets.size(); ++i) results.push_back(lab15::covered(sets.next()));
  out.put("results", results);
}

KIT_SCENARIO(exposed) {
  Cases<lab15::Interval> communication(in, "communication", 2, interval_of);
  Cases<lab15::Interval> computation(in, "computation", 2, interval_of);
  Integers results;
  for (std::size_t i = 0; i < communication.size(); ++i) {
    const auto mine = communication.next();
    results.push_back(lab15::exposed(mine, computation.next()));
  }
  out.put("results", results);
}

// windows: two numbers, begin and end, for each trace.
KIT_SCENARIO(measure) {
  Cases<lab15::Event> traces(in, "events", 4, event_of);
  const Integers windows = in.integers("windows");
  Integers times;
  for (std::size_t i = 0; i < traces.size(); ++i)
    append(times, lab15::measure(traces.next(), {windows[2 * i], windows[2 * i + 1]}));
  out.put("times", times);
}

// times: step, compute, comm and exposed of each case, from the judge.
KIT_SCENARIO(hidden) {
  const Integers times = in.integers("times");
  std::vector<double> fractions;
  Integers wins;
  for (std::size_t i = 0; i + 4 <= times.size(); i += 4) {
    const lab15::StepTime t{times[i], times[i + 1], times[i + 2], times[i + 3]};
    fractions.push_back(lab15::hidden_fraction(t));
    wins.push_back(lab15::most_to_win(t));
  }
  out.put("fractions", fractions);
  out.put("wins", wins);
}

KIT_SCENARIO(offsets) {
  Cases<lab15::Ping> rounds(in, "pings", 4, ping_of);
  Integers offsets;
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    const lab15::ClockOffset found = lab15::estimate_offset(rounds.next());
    offsets.insert(offsets.end(), {found.offset, found.uncertainty, found.at});
  }
  out.put("offsets", offsets);
}

// rows: a stamp, offset and at of `before`, and offset and at of `after`.
KIT_SCENARIO(stamps) {
  const Integers rows = in.integers("rows");
  Integers stamps;
  for (std::size_t i = 0; i + 5 <= rows.size(); i += 5)
    stamps.push_back(
        lab15::to_rank_0(rows[i], {rows[i + 1], 0, rows[i + 2]}, {rows[i + 3], 0, rows[i + 4]}));
  out.put("stamps", stamps);
}

// With rows = 1, reports waited, caused and times_last of each rank; otherwise, the straggler and
// the persistent straggler of each table.
KIT_SCENARIO(lateness) {
  Cases<lab15::Time> tables(in, "arrivals", 1, number_of);
  const Integers ranks = in.integers("ranks");
  const bool rows = in.integer("rows") != 0;
  Integers all, stragglers;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const auto arrivals = tables.next();
    if (rows)
      for (const lab15::Lateness& l : lab15::lateness(arrivals, int(ranks[i])))
        all.insert(all.end(), {l.waited, l.caused, l.times_last});
    else
      stragglers.insert(stragglers.end(), {lab15::straggler(arrivals, int(ranks[i])),
                                           lab15::persistent_straggler(arrivals, int(ranks[i]))});
  }
  out.put("rows", all);
  out.put("stragglers", stragglers);
}

// Analyses a step of several ranks, each of which stamps its events with its own clock. Each rank
// except rank 0 has two rounds of pings; all have events, and arrival times at the collectives.
KIT_SCENARIO(trace) {
  const auto ranks = std::size_t(in.integer("ranks"));
  Cases<lab15::Ping> pings(in, "pings", 4, ping_of);
  Cases<lab15::Event> events(in, "events", 4, event_of);
  const Integers windows = in.integers("windows"), stamps = in.integers("arrivals");
  Integers arrivals(stamps.size()), times;
  for (std::size_t r = 0; r < ranks; ++r) {
    lab15::ClockOffset before, after;
    if (r > 0) {
      before = lab15::estimate_offset(pings.next());
      after = lab15::estimate_offset(pings.next());
    }
    for (std::size_t c = r; c < stamps.size(); c += ranks)
      arrivals[c] = lab15::to_rank_0(stamps[c], before, after);
    append(times, lab15::measure(events.next(), {windows[2 * r], windows[2 * r + 1]}));
  }
  out.put("times", times);
  out.put("arrivals", arrivals);
  out.put("straggler", lab15::straggler(arrivals, int(ranks)));
}

KIT_SCENARIO(sweep) {
  Cases<lab15::Gradient> models(in, "gradients", 2, gradient_of);
  const Integers networks = in.integers("networks"), caps = in.integers("caps");
  const std::string what = in.text("what");
  Integers results;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const auto gradients = models.next();
    const lab15::Network network{networks[2 * i], networks[2 * i + 1]};
    if (what == "last_end")
      for (const std::int64_t cap : caps)
        results.push_back(lab15::last_end(gradients, network, cap));
    if (what == "best_cap") results.push_back(lab15::best_cap(gradients, network, caps));
    if (what == "earliest_end") results.push_back(lab15::earliest_end(gradients, network));
  }
  out.put("results", results);
}

KIT_SCENARIO(roof) {
  Cases<lab15::Kernel> lists(in, "kernels", 3, kernel_of);
  const std::vector<double> machines = in.numbers("machines");
  std::vector<double> ridges, least, rates, shares;
  Integers limits;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    const lab15::Machine machine{machines[2 * i], machines[2 * i + 1]};
    ridges.push_back(lab15::ridge(machine));
    for (const lab15::Kernel& kernel : lists.next()) {
      least.push_back(lab15::least_time(machine, kernel));
      rates.push_back(lab15::attainable(machine, kernel));
      shares.push_back(lab15::roof_share(machine, kernel));
      limits.push_back(int(lab15::limit(machine, kernel)));
    }
  }
  out.put("ridges", ridges);
  out.put("least", least);
  out.put("rates", rates);
  out.put("shares", shares);
  out.put("limits", limits);
}

KIT_SCENARIO(first_to_tune) {
  Cases<lab15::Kernel> lists(in, "kernels", 3, kernel_of);
  const std::vector<double> machines = in.numbers("machines");
  Integers found;
  for (std::size_t i = 0; i < lists.size(); ++i)
    found.push_back(lab15::first_to_tune({machines[2 * i], machines[2 * i + 1]}, lists.next()));
  out.put("found", found);
}

KIT_SCENARIO(refusals) {
  using namespace lab15;
  const Integers numbers = in.integers("pings"), sizes = in.integers("sizes");
  Integers offsets, tables, caps, times;
  Cases<Ping> rounds(in, "pings", 4, ping_of);
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    const auto pings = rounds.next();
    offsets.push_back(refuses([&] { return estimate_offset(pings); }));
  }
  for (std::size_t i = 0; i + 2 <= sizes.size(); i += 2) {  // arrivals, ranks
    const Integers arrivals(std::size_t(sizes[i]), 7);
    const int ranks = int(sizes[i + 1]);
    tables.insert(tables.end(), {refuses([&] { return lateness(arrivals, ranks); }),
                                 refuses([&] { return straggler(arrivals, ranks); }),
                                 refuses([&] { return persistent_straggler(arrivals, ranks); })});
  }
  const std::vector<Gradient> some{{1, 10}, {2, 20}};
  for (const std::int64_t cap : in.integers("caps")) {
    caps.push_back(refuses([&] { return last_end(some, {}, cap); }));
    caps.push_back(refuses([&] { return last_end({}, {}, cap); }));
  }
  const std::span<const std::int64_t> none;
  caps.push_back(refuses([&] { return best_cap(some, {}, none); }));
  for (const std::int64_t time : in.integers("times"))
    times.push_back(refuses([&] { return roof_share({1e12, 1e11}, {100, 100, time}); }));
  out.put("offsets", offsets);
  out.put("tables", tables);
  out.put("caps", caps);
  out.put("times", times);
}
