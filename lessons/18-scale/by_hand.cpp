// The job of the lesson, in minutes: three ranks of an MTBF of 30 hours, four hours of work.
// It runs the simulator of lab 18.
#define SOLUTION
#include <fmt/core.h>

#include "labs/18-scale/forms.hpp"
#include "labs/18-scale/simulator.hpp"

int main() {
  const double ranks[] = {30 * 60, 30 * 60, 30 * 60};
  const double mtbf = lab18::job_mtbf(ranks);
  fmt::print("MTBF of the job {:.0f} min, Young's interval {:.1f}, Daly's {:.1f}\n", mtbf,
             lab18::young(3, mtbf), lab18::daly(3, mtbf));
  const lab18::Time failures[] = {100, 105, 239};
  const auto phases = lab18::timeline({240, 60, 3, 10}, failures);
  constexpr const char* kNames[] = {"work", "save", "restart", "wait"};
  for (const lab18::Phase& p : phases)
    fmt::print("{:4} to {:3}  {}{}\n", p.begin, p.end, kNames[int(p.kind)], p.cut ? ", cut" : "");
  const lab18::Account a = lab18::account(phases);
  fmt::print("useful {} + saving {} + restarting {} + lost {} = {}: goodput {:.1f} %\n", a.useful,
             a.saving, a.restarting, a.lost, phases.back().end,
             100.0 * double(a.useful) / double(phases.back().end));
}
