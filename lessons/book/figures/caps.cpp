// book_caps: exposed communication over the bucket cap.
//
//     book_caps --world 16 --alpha 50 --bandwidth 12.5 --backward 60 --mib 96
//
// A live figure of the book; the model of lesson 15's program `sweep`: gradients of 1 MiB become
// ready evenly during backward, DDP's own buckets hold them, and the ring reduces one bucket at a
// time.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"
#include "runtime/analysis/cost.hpp"
#include "runtime/parallel/bucket.hpp"

using namespace ringsmith;
using nlohmann::json;

namespace {

constexpr double kMib = 1 << 20;

struct Options {
  int world = 16, mib = 96;
  double alpha = 50, bandwidth = 12.5, backward = 60;  // microseconds, GB/s, ms
  bool json = false;
};

struct Row {
  int cap = 0;
  std::size_t buckets = 0;
  double sum = 0, last = 0, exposed = 0;  // ms
};

double rounded(double x) { return std::round(x * 1e4) / 1e4; }

double all_reduce(const Options& o, double mib) {
  return 1e3 *
         comm::ring_all_reduce_time(o.world, mib * kMib, {o.alpha * 1e-6, 1e-9 / o.bandwidth}, 0);
}

Row row_of(const Options& o, int cap) {
  const std::vector<BucketItem> items(std::size_t(o.mib), {Elements(1 << 18), DType::f32});
  std::vector<int> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  const auto limit = MiB(std::size_t(cap));
  const BucketPlan plan = rebuilt_plan(items, {limit, limit}, order);
  Row row{cap, plan.buckets.size()};
  double end = 0;
  std::size_t gradients = 0;
  for (const BucketLayout& bucket : plan.buckets) {
    gradients += bucket.slots.size();
    const double ready = o.backward * double(gradients) / o.mib;
    row.last = all_reduce(o, double(bucket.slots.size()));
    end = std::max(ready, end) + row.last;
    row.sum += row.last;
  }
  row.exposed = end - o.backward;
  return {cap, row.buckets, rounded(row.sum), rounded(row.last), rounded(row.exposed)};
}

// No cap exposes less: the bytes that are ready at t or later need at least one all-reduce, which
// begins at t at the earliest.
double bound(const Options& o) {
  double least = 0;
  for (int first = 0; first < o.mib; ++first)
    least = std::max(least, o.backward * (first + 1) / o.mib + all_reduce(o, o.mib - first));
  return rounded(least - o.backward);
}

std::vector<int> caps_of(const Options& o) {
  std::vector<int> caps;
  for (int cap = 1; cap < o.mib; cap += cap < 8 ? 1 : cap / 4) caps.push_back(cap);
  caps.push_back(o.mib);
  return caps;
}

std::string as_text(const Options& o, const std::vector<Row>& rows) {
  std::string out = " MiB  buckets  in all, ms  last bucket  exposed\n";
  for (const Row& r : rows)
    out += fmt::format("{:>4} {:>8} {:>11.2f} {:>12.2f} {:>8.2f}\n", r.cap, r.buckets, r.sum,
                       r.last, r.exposed);
  return out + fmt::format("whatever the buckets: at least {:.2f} ms exposed\n", bound(o));
}

std::string as_json(const Options& o, const std::vector<Row>& rows) {
  json data = json::array();
  for (const Row& r : rows)
    data.push_back({{"cap", r.cap},
                    {"buckets", r.buckets},
                    {"sum", r.sum},
                    {"last", r.last},
                    {"exposed", r.exposed}});
  return json{{"rows", data}, {"bound", bound(o)}, {"backward", o.backward}}.dump();
}

int run(int argc, char** argv) {
  Options o;
  apps::CommandLine app("Exposed communication over the bucket cap.", "book_caps");
  app.add_option("--world", o.world, "ranks")->check(apps::whole(2, 65536));
  app.add_option("--mib", o.mib, "of gradients")->check(apps::whole(1, 1024));
  app.add_option("--alpha", o.alpha, "microseconds a message")->check(apps::real(0, 1e6));
  app.add_option("--bandwidth", o.bandwidth, "of a link, GB/s")->check(apps::above_zero(1e6));
  app.add_option("--backward", o.backward, "ms")->check(apps::real(0.001, 1e5));
  app.add_flag("--json", o.json, "print JSON; times in ms");
  if (!app.parse(argc, argv)) return 0;
  std::vector<Row> rows;
  for (const int cap : caps_of(o)) rows.push_back(row_of(o, cap));
  fmt::print("{}", o.json ? as_json(o, rows) + "\n" : as_text(o, rows));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program("book_caps", [&] { return run(argc, argv); });
}
