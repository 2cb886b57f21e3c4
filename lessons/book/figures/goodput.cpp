// book_goodput: the useful share of a job's time over the interval between saves.
//
//     book_goodput --gpus 16384 --years 5.8 --save 20 --restart 300
//
// A live figure of the book. The exact formula and Daly's interval are those of lesson 18: failures
// without memory, a save after each interval of work, a restart after each failure.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <vector>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"

using namespace ringsmith;
using nlohmann::json;

namespace {

constexpr double kYear = 365.25 * 86400;

struct Options {
  int gpus = 16384;
  double years = 5.8, save = 20, restart = 300;  // years until a GPU fails; seconds
  bool json = false;
};

double rounded(double x, double to) { return std::round(x / to) * to; }

// Percent, to first order; below zero where the formula no longer holds.
double first_order(const Options& o, double tau, double mtbf) {
  return 100 * (1 - o.save / tau - (tau / 2 + o.restart) / mtbf);
}

double exact(const Options& o, double tau, double mtbf) {
  const double expected = mtbf * std::exp(o.restart / mtbf) * std::expm1((tau + o.save) / mtbf);
  return std::isfinite(expected) ? 100 * tau / expected : 0;
}

double young(double save, double mtbf) { return std::sqrt(2 * save * mtbf); }

double daly(double save, double mtbf) {
  if (save >= 2 * mtbf) return mtbf;
  const double x = std::sqrt(save / (2 * mtbf));
  return young(save, mtbf) * (1 + x / 3 + x * x / 9) - save;
}

int run(int argc, char** argv) {
  Options o;
  apps::CommandLine app("The useful share of a job's time over the interval between saves.",
                        "book_goodput");
  app.add_option("--gpus", o.gpus, "ranks")->check(apps::whole(1, 1 << 24));
  app.add_option("--years", o.years, "until one of them fails")->check(apps::above_zero(1e4));
  app.add_option("--save", o.save, "seconds of a save")->check(apps::above_zero(1e6));
  app.add_option("--restart", o.restart, "seconds of a restart")->check(apps::real(0, 1e6));
  app.add_flag("--json", o.json, "print JSON");
  if (!app.parse(argc, argv)) return 0;
  const double mtbf = o.years * kYear / o.gpus;
  const double best = daly(o.save, mtbf);
  json taus = json::array(), series = json::array(), simple = json::array();
  std::string text = fmt::format("MTBF of the job {:.0f} s; Young {:.0f} s, Daly {:.0f} s\n", mtbf,
                                 young(o.save, mtbf), best);
  text += "interval, s  first order, %  exact, %\n";
  for (double tau = 16; tau <= 1 << 17; tau *= 2) {
    const double a = std::clamp(first_order(o, tau, mtbf), -999.0, 100.0), b = exact(o, tau, mtbf);
    text += fmt::format("{:>11.0f} {:>15.1f} {:>9.1f}\n", tau, a, b);
    taus.push_back(tau);
    simple.push_back(rounded(a, 0.01));
    series.push_back(rounded(b, 0.01));
  }
  text += fmt::format("at Daly's interval {:.1f} % are useful\n", exact(o, best, mtbf));
  if (!o.json) {
    fmt::print("{}", text);
    return 0;
  }
  fmt::print("{}\n", json{{"mtbf", rounded(mtbf, 0.01)},
                          {"daly", rounded(best, 0.01)},
                          {"best", rounded(exact(o, best, mtbf), 0.01)},
                          {"intervals", taus},
                          {"simple", simple},
                          {"exact", series}}
                         .dump());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program("book_goodput", [&] { return run(argc, argv); });
}
