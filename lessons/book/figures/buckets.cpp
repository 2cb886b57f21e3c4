// book_buckets: one step of data-parallel training on paper. Gradients become ready from the last
// to the first, fill buckets, and each full bucket's all-reduce begins when every rank has it.
//
//     book_buckets --first 256 --cap 1024 --slow 1.5
//
// A live figure of the book. The buckets are DistributedDataParallel's (runtime/parallel/bucket).
// The simulator (runtime/analysis/simulator) computes the time of an all-reduce. The hidden and
// exposed parts are measured from the events as in a run's report (labs/apps/train/step_time). Two
// things are assumed: gradients take backward time in proportion to their bytes, and the slow rank
// computes everything --slow times as long.
#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <numeric>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"
#include "labs/apps/train/step_time.hpp"
#include "runtime/analysis/simulator.hpp"
#include "runtime/parallel/bucket.hpp"

using namespace ringsmith;
using apps::StepTime;
using nlohmann::json;

namespace {

constexpr std::size_t kElementsInKiB = 1024 / sizeof(float);
constexpr double kNanoseconds = 1e9, kMilliseconds = 1e-6;  // per second; per nanosecond

struct Options {
  std::vector<int> gradients = {2048, 256, 1024, 256, 1024, 256, 1024, 256, 1024, 64};  // KiB
  int first = 1024, cap = 4096;                                                         // KiB
  int world = 4;
  double forward = 4, backward = 8, slow = 1;  // ms; times
  double alpha = 50, bandwidth = 2;            // microseconds; GB/s
  bool json = false;
};

using Time = std::int64_t;  // ns from the start of the step

struct Reduction {
  std::vector<int> gradients;  // in the order of their slots
  int kib = 0;
  std::vector<Time> ready;  // [rank]
  Time begin = 0, end = 0;  // on the network
};

struct Rank {
  Time forward = 0, backward = 0;  // when they end
  std::vector<Time> gradients;     // when each is ready
  StepTime time;
};

struct Step {
  std::vector<Reduction> reductions;
  std::vector<Rank> ranks;
  Time end = 0;
};

Time from_ms(double ms) { return static_cast<Time>(ms / kMilliseconds); }
double to_ms(Time t) { return static_cast<double>(t) * kMilliseconds; }

std::vector<Reduction> buckets_of(const Options& o) {
  std::vector<BucketItem> items;
  for (const int kib : o.gradients)
    items.push_back({Elements(static_cast<std::size_t>(kib) * kElementsInKiB)});
  std::vector<int> ready(items.size());
  std::iota(ready.rbegin(), ready.rend(), 0);  // backward meets the last parameter first
  const auto caps =
      BucketCaps{KiB(static_cast<std::size_t>(o.first)), KiB(static_cast<std::size_t>(o.cap))};
  std::vector<Reduction> out;
  for (const BucketLayout& bucket : rebuilt_plan(items, caps, ready).buckets) {
    Reduction one;
    for (const BucketSlot& slot : bucket.slots) one.gradients.push_back(slot.parameter);
    one.kib = static_cast<int>(bucket.size().value / 1024);
    out.push_back(std::move(one));
  }
  return out;
}

Rank computing(const Options& o, double factor) {
  const double all = std::accumulate(o.gradients.begin(), o.gradients.end(), 0.0);
  Rank rank;
  rank.forward = from_ms(o.forward * factor);
  rank.backward = from_ms((o.forward + o.backward) * factor);
  rank.gradients.resize(o.gradients.size());
  double done = 0;
  for (std::size_t g = o.gradients.size(); g-- > 0;) {
    done += o.gradients[g];
    rank.gradients[g] = from_ms((o.forward + o.backward * done / all) * factor);
  }
  return rank;
}

// The events that a tracer would have recorded on this rank: one thread computes, and another
// communicates, from the time the rank has a bucket until all ranks have its sum.
std::vector<trace::FinishedSpan> events_of(const Step& step, std::size_t r) {
  const Rank& rank = step.ranks[r];
  std::vector<trace::FinishedSpan> events = {
      {"forward", 0, rank.forward, {}, 0, trace::Category::compute},
      {"backward", rank.forward, rank.backward, {}, 0, trace::Category::compute}};
  Time before = 0;
  for (const Reduction& reduction : step.reductions) {
    events.push_back({"all_reduce",
                      std::max(reduction.ready[r], before),
                      reduction.end,
                      {},
                      1,
                      trace::Category::comm});
    before = reduction.end;
  }
  return events;
}

Step play(const Options& o) {
  Step step;
  for (int r = 0; r < o.world; ++r)
    step.ranks.push_back(computing(o, r == o.world - 1 ? o.slow : 1));
  step.reductions = buckets_of(o);
  const comm::Network network =
      comm::Network::uniform({o.alpha * 1e-6, 1e-9 / o.bandwidth}, /*gamma=*/0);
  Time free = 0;  // the network: one bucket after the other
  for (Reduction& reduction : step.reductions) {
    for (const Rank& rank : step.ranks) {
      Time ready = 0;
      for (const int g : reduction.gradients)
        ready = std::max(ready, rank.gradients[static_cast<std::size_t>(g)]);
      reduction.ready.push_back(ready);
    }
    reduction.begin = std::max(free, std::ranges::max(reduction.ready));
    const std::size_t count = static_cast<std::size_t>(reduction.kib) * kElementsInKiB;
    const double seconds =
        comm::simulate_ring_all_reduce(o.world, count, sizeof(float), network).seconds;
    free = reduction.end = reduction.begin + static_cast<Time>(seconds * kNanoseconds);
  }
  step.end = free;
  for (const Rank& rank : step.ranks) step.end = std::max(step.end, rank.backward);
  for (std::size_t r = 0; r < step.ranks.size(); ++r)
    step.ranks[r].time = apps::measure(events_of(step, r), {0, step.end});
  return step;
}

std::string range_of(const std::vector<int>& gradients) {
  return gradients.size() == 1 ? fmt::format("g{}", gradients[0])
                               : fmt::format("g{} to g{}", gradients.front(), gradients.back());
}

std::string as_text(const Options& o, const Step& step) {
  std::string out = fmt::format("{} gradients, {} KiB, in {} bucket{}\n", o.gradients.size(),
                                std::accumulate(o.gradients.begin(), o.gradients.end(), 0),
                                step.reductions.size(), step.reductions.size() == 1 ? "" : "s");
  out += "bucket  holds           KiB  full on rank 0  on the last   starts     ends  (ms)\n";
  for (std::size_t b = 0; b < step.reductions.size(); ++b) {
    const Reduction& r = step.reductions[b];
    out += fmt::format("{:>6}  {:<12} {:>6}  {:>14.2f}  {:>11.2f}  {:>7.2f}  {:>7.2f}\n", b,
                       range_of(r.gradients), r.kib, to_ms(r.ready.front()),
                       to_ms(std::ranges::max(r.ready)), to_ms(r.begin), to_ms(r.end));
  }
  out += "  rank    step  forward  backward    comm  exposed  hidden  (ms)\n";
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    const StepTime& t = step.ranks[r].time;
    out += fmt::format("{:>6}  {:>6.2f}  {:>7.2f}  {:>8.2f}  {:>6.2f}  {:>7.2f}  {:>5.0f}%\n", r,
                       to_ms(t.step), to_ms(t.forward), to_ms(t.backward), to_ms(t.comm),
                       to_ms(t.exposed), 100 * t.hidden_fraction());
  }
  return out;
}

std::string as_json(const Options& o, const Step& step) {
  json reductions = json::array(), ranks = json::array();
  for (const Reduction& r : step.reductions)
    reductions.push_back({{"gradients", r.gradients},
                          {"kib", r.kib},
                          {"ready", r.ready},
                          {"begin", r.begin},
                          {"end", r.end}});
  for (const Rank& r : step.ranks)
    ranks.push_back({{"forward", r.forward},
                     {"backward", r.backward},
                     {"gradients", r.gradients},
                     {"comm", r.time.comm},
                     {"exposed", r.time.exposed},
                     {"hidden", r.time.hidden_fraction()}});
  return json{
      {"gradients", o.gradients}, {"reductions", reductions}, {"ranks", ranks}, {"end", step.end}}
      .dump();
}

int run(int argc, char** argv) {
  Options o;
  apps::CommandLine app("One training step on paper: gradients, buckets, and what backward hides.",
                        "book_buckets");
  app.add_option("--gradients", o.gradients, "KiB of each, in the order of forward")
      ->separated_by_commas(256)
      ->check(apps::whole(1, 1 << 20));
  app.add_option("--first", o.first, "limit of the first bucket, KiB")
      ->check(apps::whole(1, 1 << 20));
  app.add_option("--cap", o.cap, "limit of the others, KiB")->check(apps::whole(1, 1 << 20));
  app.add_option("--world", o.world, "ranks")->check(apps::whole(1, 64));
  app.add_option("--forward", o.forward, "ms")->check(apps::real(0, 1e5));
  app.add_option("--backward", o.backward, "ms")->check(apps::real(0.001, 1e5));
  app.add_option("--slow", o.slow, "the last rank computes this many times as long")
      ->check(apps::real(1, 100));
  app.add_option("--alpha", o.alpha, "microseconds a message")->check(apps::real(0, 1e6));
  app.add_option("--bandwidth", o.bandwidth, "of a link, GB/s")->check(apps::above_zero(1e6));
  app.add_flag("--json", o.json, "print JSON; times in ns");
  if (!app.parse(argc, argv)) return 0;
  require(o.gradients.size() <= 256, "--gradients: at most 256");

  const Step step = play(o);
  fmt::print("{}", o.json ? as_json(o, step) + "\n" : as_text(o, step));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program("book_buckets", [&] { return run(argc, argv); });
}
