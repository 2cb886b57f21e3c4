// book_costs: the time of an all-reduce on paper, over its size, by four algorithms.
//
//     book_costs --world 8 --alpha 5 --bandwidth 10 --adding 20
//
// A live figure of the book. The formulas are those of lesson 05, from runtime/analysis/cost.
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"
#include "runtime/analysis/cost.hpp"
#include "runtime/comm/schedule/halving.hpp"
#include "runtime/comm/schedule/tree.hpp"

using namespace ringsmith;
using nlohmann::json;

namespace {

constexpr std::array kNames = {"flat", "tree", "ring", "halving"};
constexpr double kMicroseconds = 1e6;

struct Options {
  int world = 8;
  double alpha = 5, bandwidth = 10, adding = 20;  // microseconds; GB/s
  bool json = false;
};

struct Row {
  double bytes = 0;
  std::array<double, kNames.size()> times{};  // microseconds, rounded to nanoseconds
  std::size_t best = 0;
};

std::array<double, kNames.size()> times_of(const Options& o, double bytes) {
  const comm::Link link{o.alpha * 1e-6, 1e-9 / o.bandwidth};
  const double gamma = 1e-9 / o.adding;
  const int core = comm::halving_core(o.world);
  const double share = (core - 1.0) / core, rounds = comm::tree_rounds(core);
  const double inside =
      2 * (rounds * link.alpha + share * bytes * link.beta) + share * bytes * gamma;
  const double outside = core < o.world ? 2 * (link.alpha + bytes * link.beta) + bytes * gamma : 0;
  return {(o.world - 1) * (2 * (link.alpha + bytes * link.beta) + bytes * gamma),
          comm::tree_time(o.world, bytes, link, gamma) + comm::tree_time(o.world, bytes, link, 0),
          comm::ring_all_reduce_time(o.world, bytes, link, gamma), inside + outside};
}

std::vector<Row> rows_of(const Options& o) {
  std::vector<Row> rows;
  for (double bytes = 256; bytes <= 1 << 28; bytes *= 4) {
    Row row{bytes, times_of(o, bytes)};
    for (double& t : row.times) t = std::round(t * kMicroseconds * 1e3) / 1e3;
    row.best =
        std::size_t(std::min_element(row.times.begin(), row.times.end()) - row.times.begin());
    rows.push_back(row);
  }
  return rows;
}

std::string as_text(const std::vector<Row>& rows) {
  std::string out = "     bytes         flat         tree         ring      halving  best  (us)\n";
  for (const Row& row : rows) {
    out += fmt::format("{:>10.0f}", row.bytes);
    for (const double t : row.times) out += fmt::format(" {:>12.2f}", t);
    out += fmt::format("  {}\n", kNames[row.best]);
  }
  return out;
}

std::string as_json(const Options& o, const std::vector<Row>& rows) {
  json bytes = json::array(), times = json::array(), best = json::array();
  for (const Row& row : rows) {
    bytes.push_back(row.bytes);
    times.push_back(row.times);
    best.push_back(kNames[row.best]);
  }
  return json{
      {"world", o.world}, {"names", kNames}, {"bytes", bytes}, {"times", times}, {"best", best}}
      .dump();
}

int run(int argc, char** argv) {
  Options o;
  apps::CommandLine app("The time of an all-reduce on paper, by four algorithms.", "book_costs");
  app.add_option("--world", o.world, "ranks")->check(apps::whole(2, 65536));
  app.add_option("--alpha", o.alpha, "microseconds a message")->check(apps::real(0, 1e6));
  app.add_option("--bandwidth", o.bandwidth, "of a link, GB/s")->check(apps::above_zero(1e6));
  app.add_option("--adding", o.adding, "GB/s")->check(apps::above_zero(1e6));
  app.add_flag("--json", o.json, "print JSON; times in microseconds");
  if (!app.parse(argc, argv)) return 0;
  const std::vector<Row> rows = rows_of(o);
  fmt::print("{}", o.json ? as_json(o, rows) + "\n" : as_text(rows));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program("book_costs", [&] { return run(argc, argv); });
}
