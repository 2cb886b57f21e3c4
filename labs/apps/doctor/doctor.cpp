// doctor: reports the resources of this machine and, in a launched job, how ranks are connected.
#include <algorithm>
#include <cstdio>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"
#include "labs/apps/common/job.hpp"
#include "labs/apps/common/text.hpp"
#include "labs/apps/doctor/findings.hpp"
#include "runtime/base/process.hpp"
#include "runtime/comm/schedule/select.hpp"
#include "runtime/job/place.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;

namespace {

constexpr std::size_t kWidest = 100;

void print_title() {
  utsname system{};
  uname(&system);
  fmt::print("doctor: {} ({} {}, {}), {:%Y-%m-%d %H:%M}\n\n", host_name(), system.sysname,
             system.release, system.machine, fmt::localtime(std::time(nullptr)));
}

void print_choices(std::size_t width) {
  fmt::print("{}\n\n",
             wrapped("The first row that fits a call applies. The executor after 'else' runs the "
                     "call if a buffer is not in communication memory, or if the schedule cannot "
                     "run directly in the buffers. 'As asked': the algorithm that the call names.",
                     0, width));
  int number = 0;
  for (const auto& [data, calls, executor, schedule, why] : comm::table_of_choices()) {
    const std::string head = fmt::format("{:>2}  {:<16}", ++number, data);
    fmt::print("{}\n{}\n", wrapped(calls, head.size(), width, head),
               wrapped(fmt::format("{}; {}: {}", executor, schedule, why), head.size(), width,
                       std::string(head.size(), ' ')));
  }
}

void print_verdict(const Findings& all) {
  const auto count = [&](Finding::Verdict v) {
    return std::ranges::count_if(all, [&](const auto& f) { return f.verdict == v; });
  };
  const auto failures = count(Finding::Verdict::fail), warnings = count(Finding::Verdict::warn);
  if (failures > 0)
    fmt::print("\nverdict: {} of {} findings keep jobs from running: see FAIL\n", failures,
               all.size());
  else if (warnings > 0)
    fmt::print("\nverdict: jobs run; {} of {} findings will cost time or limit them: see warn\n",
               warnings, all.size());
  else
    fmt::print("\nverdict: jobs run; no problems found\n");
}

int run(int argc, char** argv) {
  JobOptions o;
  std::size_t width = 0;
  bool algorithms = false;
  CommandLine app("Examines this machine and, on several ranks, the connections between them.",
                  "doctor");
  add_meeting_options(app, o);
  app.add_option("--timeout", o.timeout, "seconds that a rank waits for a peer")->check(seconds());
  app.add_option("--width", width, "columns; 0: the terminal's, at most 100")
      ->check(whole(0, 10000));
  app.add_flag("--algorithms", algorithms,
               "only list which algorithm a collective runs, by size and kind of memory");
  app.footer(how_to_start() + "\nEnvironment:\n" + starting_variables() +
             "\nExit codes: 0 jobs run, 1 a finding keeps them from running (FAIL), 3 the\n"
             "ranks cannot communicate, 4 a deadline passed, 6 wrong options, 7 no more\n"
             "memory, files or threads for this process.");
  if (!app.parse(argc, argv)) return 0;
  if (width == 0) width = std::min(terminal_width(kWidest), kWidest);
  if (algorithms) {  // needs no group
    if (comm::rank_hint() == 0) print_choices(width);
    return 0;
  }
  const auto group = comm::init_process_group(group_options(o));
  const bool speaks = group->rank() == 0;
  Findings all;
  if (speaks) {
    all = examine_machine();
    print_title();
    fmt::print("{}", render(all, width));
    std::fflush(stdout);
  }
  if (group->size() == 1) {
    fmt::print(
        "\nThe connections of a job: ringrun --standalone --nproc-per-node 2 -- doctor\n"
        "Which algorithm a collective runs: doctor --algorithms\n");
  } else {
    const JobReport job = examine_job(*group, width);
    if (speaks)
      fmt::print("\n{} ranks\n\n{}\n{}", group->size(), job.table, render(job.findings, width));
    all.insert(all.end(), job.findings.begin(), job.findings.end());
  }
  if (speaks) print_verdict(all);
  return speaks && worst_of(all) == Finding::Verdict::fail ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("doctor", [&] { return run(argc, argv); });
}
