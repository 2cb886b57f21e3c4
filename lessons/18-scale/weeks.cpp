// lesson18_weeks WHAT: weeks of many GPUs, played by the simulator of lab 18.
//
//   scale       from 8 to 1,048,576 GPUs: the formulas, to first order and exact
//   intervals   48 days of work on 16,384 GPUs, for several intervals between saves
//   curve       the same for two clusters, as numbers for the figure
//   spares      the same, with few spares
//   slowest     a step that waits for the slowest rank, and updates that do not wait
//   mine C R M  the best interval for your own save, restart and MTBF, in seconds
//
// A GPU fails after an exponential time. Its mean follows from the published figures of Llama 3:
// 419 unexpected interruptions in 54 days of 16,384 GPUs. Saves of 20 s, restarts of 5 minutes and
// repairs of a day are assumptions.
#define SOLUTION
#include <cmath>
#include <cstdint>
#include <fmt/core.h>
#include <string>
#include <vector>

#include "labs/18-scale/forms.hpp"
#include "labs/18-scale/simulator.hpp"
#include "lessons/arguments.hpp"

using lab18::Time;

namespace {

constexpr Time kSecond = 1'000'000'000;
constexpr double kDay = 86400;
constexpr int kLlama = 16384;
constexpr double kMtbf = 54 * kDay / 419 * kLlama;  // of one GPU, seconds
constexpr double kSave = 20, kRestart = 300, kRepair = kDay, kWork = 48 * kDay;
constexpr int kTrials = 8;

double job_mtbf(int gpus) { return kMtbf / gpus; }

// Returns the n-th random number of a stream, in (0, 1] (splitmix64: Steele, Lea, Flood 2014).
double uniform(std::uint64_t stream, std::uint64_t n) {
  std::uint64_t z = (stream << 40) + (n + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return double(((z ^ (z >> 31)) >> 11) + 1) * 0x1p-53;
}

struct Weeks {
  lab18::Account account;
  Time end = 0;
  std::size_t failures = 0;
};

Weeks play(int gpus, int spares, double interval, std::uint64_t trial) {
  const lab18::Plan plan{Time(kWork) * kSecond, Time(interval * double(kSecond)),
                         Time(kSave) * kSecond, Time(kRestart) * kSecond};
  std::uint64_t draws = 0;
  const lab18::Run run = lab18::simulate(plan, {gpus, spares, Time(kRepair) * kSecond}, [&](int) {
    return std::min(Time(-kMtbf * std::log(uniform(trial, draws++)) * double(kSecond)) + 1,
                    lab18::kNever);
  });
  return {lab18::account(run.phases), run.phases.back().end, run.failures.size()};
}

double goodput(double interval, int gpus) {
  return 100 * lab18::goodput(interval, kSave, kRestart, job_mtbf(gpus));
}

void scale() {
  fmt::print("    GPUs   MTBF of the job   Young   Daly   goodput, first order   exact\n");
  for (int gpus = 8; gpus <= 1 << 20; gpus *= gpus == 8 ? 128 : gpus < kLlama ? 16 : 4) {
    const double m = job_mtbf(gpus), tau = lab18::daly(kSave, m);
    fmt::print("{:8} {:14.2f} h {:6.0f}s {:5.0f}s {:20.1f} % {:6.1f} %\n", gpus, m / 3600,
               lab18::young(kSave, m), tau, 100 * (1 - kSave / tau - (tau / 2 + kRestart) / m),
               goodput(tau, gpus));
  }
}

// Prints the shares in percent, averaged over the trials, without the end of the line.
void shares(int gpus, int spares, double interval, const std::string& name) {
  std::vector<double> useful, saving, restarting, lost, waiting;
  std::size_t failures = 0;
  for (int t = 0; t < kTrials; ++t) {
    const Weeks w = play(gpus, spares, interval, std::uint64_t(t));
    const auto share = [&](Time part) { return 100 * double(part) / double(w.end); };
    useful.push_back(share(w.account.useful)), saving.push_back(share(w.account.saving));
    restarting.push_back(share(w.account.restarting)), lost.push_back(share(w.account.lost));
    waiting.push_back(share(w.account.waiting));
    failures += w.failures;
  }
  const auto mean = [](const std::vector<double>& x) { return lab18::estimate(x).mean; };
  const lab18::Estimate seen = lab18::estimate(useful);
  fmt::print("{:>9} {:8} {:10.2f} +- {:.2f} {:8.2f} {:8.2f} {:8.2f} {:8.2f}", name,
             failures / kTrials, seen.mean, seen.error, mean(saving), mean(restarting), mean(lost),
             mean(waiting));
}

void intervals() {
  fmt::print(" interval failures     useful %    saving  restart     lost  waiting  by formula\n");
  const double best = lab18::daly(kSave, job_mtbf(kLlama));
  for (const double tau : {60.0, 240.0, best, 1800.0, 3600.0, 10800.0}) {
    shares(kLlama, 64, tau, fmt::format("{:.0f} s", tau));
    fmt::print("{:12.2f}\n", goodput(tau, kLlama));
  }
}

void curve() {
  for (const int gpus : {kLlama, 8 * kLlama})
    for (double tau = 20; tau < 8000; tau *= 1.25) {
      std::vector<double> useful;
      for (int t = 0; t < kTrials && gpus == kLlama; ++t) {
        const Weeks w = play(gpus, 64, tau, std::uint64_t(t));
        useful.push_back(100 * double(w.account.useful) / double(w.end));
      }
      const double mean = useful.empty() ? 0 : lab18::estimate(useful).mean;
      fmt::print("{} {:.3f} {:.4f} {:.4f}\n", gpus, tau, goodput(tau, gpus), mean);
    }
}

void spares() {
  fmt::print("   spares failures     useful %    saving  restart     lost  waiting\n");
  for (const int n : {6, 8, 12, 16, 32}) {
    shares(kLlama, n, lab18::daly(kSave, job_mtbf(kLlama)), std::to_string(n));
    fmt::print("\n");
  }
}

// One rank of n takes `slower` seconds longer than the others, in each step. All take a base time
// plus an exponential jitter of mean J. By how much is the step longer? Let M be the last of the
// other n - 1 jitters, and X the slow rank's. The step grows by the mean of max(slower + X - M, 0):
// the chance that the slow rank is last, e^(slower/J) / n if that is small, times J, since an
// exponential time that has exceeded a limit exceeds it by J on average.
void one_slow_rank() {
  constexpr double kBase = 4, kJitter = 0.1, kSlower = 0.4;
  constexpr double kRedone = 80;  // steps
  const double last = std::exp(kSlower / kJitter) / kLlama, longer = last * kJitter;
  const double step = lab18::expected_slowest(kBase, kJitter, kLlama);
  fmt::print("one rank of 16,384 takes 4.4 s instead of 4\n");
  fmt::print(
      "  without jitter: last in each step, which takes 400 ms longer; without it sooner from {} "
      "steps on\n",
      lab18::worth_from(Time((kBase + kSlower) * double(kSecond)), 4 * kSecond,
                        Time(kRestart) * kSecond, std::int64_t(kRedone)));
  fmt::print(
      "  with jitter: last in {:.2f} % of the steps, which take {:.2f} ms longer; from {:.1f} "
      "million steps on\n",
      100 * last, 1e3 * longer, (kRestart + kRedone * step) / longer * 1e-6);
}

void slowest() {
  constexpr int kSteps = 20;
  fmt::print("   ranks   all wait, s a step   formula   nobody waits, s a step   staleness\n");
  for (const int n : {1, 8, 128, 1024, kLlama}) {
    std::vector<Time> times;
    for (int i = 0; i < kSteps * n; ++i)
      times.push_back(Time((4 - 0.1 * std::log(uniform(std::uint64_t(n), std::uint64_t(i)))) *
                           double(kSecond)));
    const double wait = double(lab18::synchronous(times, n)) / double(kSecond) / kSteps;
    double sum = 0, stale = 0;
    for (const Time t : times) sum += double(t) / double(kSecond);
    const auto updates = lab18::asynchronous(times, n);
    for (const lab18::Update& u : updates) stale += double(u.staleness);
    fmt::print("{:8} {:20.2f} {:9.2f} {:24.2f} {:11.1f}\n", n, wait,
               lab18::expected_slowest(4, 0.1, n), sum / double(times.size()),
               stale / double(updates.size()));
  }
  one_slow_rank();
}

void mine(double save, double restart, double mtbf) {
  const double tau = lab18::daly(save, mtbf);
  fmt::print("Young {:.3g} s, Daly {:.3g} s; goodput at Daly's interval {:.2f} %\n",
             lab18::young(save, mtbf), tau, 100 * lab18::goodput(tau, save, restart, mtbf));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "scale") return scale(), 0;
  if (what == "intervals") return intervals(), 0;
  if (what == "curve") return curve(), 0;
  if (what == "spares") return spares(), 0;
  if (what == "slowest") return slowest(), 0;
  if (what == "mine" && argc == 5) {
    const ringsmith::lessons::Arguments given(argc, argv, "lesson18_weeks mine C R M", 4);
    constexpr double kShortest = 1e-9, kLongest = 1e12;  // seconds
    mine(given.real(2, 0, kShortest, kLongest), given.real(3, 0, 0, kLongest),
         given.real(4, 0, kShortest, kLongest));
    return 0;
  }
  fmt::print(stderr, "lesson18_weeks: scale, intervals, curve, spares, slowest, or mine C R M\n");
  return 2;
}
