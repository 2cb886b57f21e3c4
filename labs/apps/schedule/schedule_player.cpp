// schedule_player: shows, draws, proves and simulates the schedule of a collective, without other
// ranks or messages.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <unistd.h>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"
#include "labs/apps/common/files.hpp"
#include "labs/apps/common/text.hpp"
#include "labs/apps/schedule/mistakes.hpp"
#include "labs/apps/schedule/recording.hpp"
#include "runtime/analysis/checker.hpp"
#include "runtime/analysis/credits.hpp"
#include "runtime/analysis/player.hpp"
#include "runtime/analysis/simulator.hpp"
#include "runtime/comm/schedule/select.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;

namespace {

struct Options {
  std::string collective = "all_reduce", algorithm, svg, mistake;
  int world = 4, root = 0, slots = 8, ranks_per_node = 0;
  std::size_t count = 0, element_size = 4;
  bool check = false, run = false, simulate = false, quiet = false, json = false;
  std::size_t width = 0;
  double alpha_us = 5, bandwidth = 10, reduce_bandwidth = 20, overhead_us = 0;
};

constexpr int kMaxTableRanks = 36;
constexpr double kMaxSteps = 2e7;  // over all ranks, for a schedule that is written out

std::string table_of_algorithms() {
  std::string out = "\nCollectives and their algorithms (the first is the default):\n";
  for (const Collective collective : all_collectives()) {
    std::vector<std::string_view> names;
    for (const Algorithm algorithm : algorithms_of(collective)) names.push_back(name_of(algorithm));
    out += fmt::format("  {:<16}{}\n", name_of(collective),
                       apps::wrapped(fmt::format("{}", fmt::join(names, ", ")), 18));
  }
  out += "\nMistakes to plant:\n";
  for (const apps::Mistake& mistake : apps::mistakes())
    out +=
        fmt::format("  {:<18}{}\n", mistake.name, apps::wrapped(std::string(mistake.meaning), 20));
  return out +
         "\nReading the table:\n"
         "  c2 -> 3   sends chunk 2 to rank 3; c2-5 -> 3: chunks 2 to 5 in one message\n"
         "  c1 += 0   adds rank 0's data to chunk 1\n"
         "  c1 <- 0   replaces chunk 1 with rank 0's data; 'own': with this rank's input\n"
         "  01.3      the chunk holds the contributions of ranks 0, 1 and 3\n"
         "\nExit codes: 0 done, 1 --check found a fault or --run got stuck, 6 wrong\noptions.\n";
}

// With --run or --json, proves progress with exactly --slots slots instead of the default numbers.
CheckOptions how_to_check(const Options& o) {
  CheckOptions options;
  if (o.run || o.json) options.wires = {{o.slots, false}};
  return options;
}

std::string counted(int slots) { return fmt::format("{} slot{}", slots, slots == 1 ? "" : "s"); }

bool check_and_report(const Schedule& schedule, const Options& o) {
  const auto findings = check(schedule, how_to_check(o));
  for (const Violation& finding : findings) fmt::print("FAULT  {}\n", finding.describe());
  if (!findings.empty()) return false;
  const auto runs = [&](LinkModel wires) { return interpret(schedule, wires).empty(); };
  const CreditReport mapped = check_credits(schedule);
  fmt::print(
      "proved: {}: every promised chunk holds every contribution exactly once;\n"
      "        messages match in order; finishes with {} a connection\n",
      title_of(schedule), o.run ? counted(o.slots) : "1, 2 and 8 slots");
  fmt::print("        without slots (rendezvous): {}\n",
             runs({0, false}) ? "finishes" : "deadlocks: sends wait for each other");
  fmt::print("        messages larger than all slots: {}\n",
             runs({0, true}) ? "finishes" : "deadlocks: needs a slot for each whole message");
  if (mapped.waits.empty())
    fmt::print("        reading straight from the sender's buffer: safe by the data's own order\n");
  for (const CreditWait& wait : mapped.waits)
    fmt::print(
        "        reading straight from the sender's buffer: rank {} must wait before step {} until "
        "rank {} has finished step {} (chunk {})\n",
        wait.rank, wait.step, wait.reader, wait.reader_step, wait.chunk);
  if (!mapped.read_after_end.empty())
    fmt::print("        and {} of {} ranks must wait for their last readers before they return\n",
               mapped.read_after_end.size(), schedule.world);
  return true;
}

bool run_and_report(const Schedule& schedule, int slots) {
  const apps::Recording run = apps::record_run(schedule, slots);
  if (run.blocked.empty()) {
    fmt::print("run: with {} a connection every rank finishes\n", counted(slots));
    return true;
  }
  std::size_t all = 0;
  for (const auto& steps : schedule.steps) all += steps.size();
  fmt::print("run: with {} a connection {} of {} steps are done; stuck:\n", counted(slots),
             run.steps_done(schedule), all);
  for (const Blocked& b : run.blocked)
    fmt::print("     rank {} at step {} waits for a {} rank {}\n", b.rank, b.step,
               b.sending ? "free slot to" : "message from", b.peer);
  return false;
}

void print_times(const Options& o, const Simulation& simulation, double bytes) {
  const double us = simulation.seconds * 1e6;
  const double algorithm_bandwidth = simulation.seconds > 0 ? bytes / simulation.seconds / 1e9 : 0;
  fmt::print(
      "simulated: {} ranks, {:.0f} bytes, alpha {} us, link {} GB/s, reduce {} GB/s, {} slots\n"
      "           {:.3f} us, algbw {:.3f} GB/s, {} messages, {:.4g} bytes sent in all\n",
      o.world, bytes, o.alpha_us, o.bandwidth, o.reduce_bandwidth, o.slots, us, algorithm_bandwidth,
      simulation.messages, simulation.bytes);
  const auto [first, last] = std::ranges::minmax_element(simulation.finished);
  fmt::print("           first rank done at {:.3f} us, last at {:.3f} us\n", *first * 1e6,
             *last * 1e6);
}

int run(int argc, char** argv) {
  Options o;
  apps::CommandLine app(
      "Shows the messages of each step of a collective; draws it, proves it correct, and computes "
      "its time.",
      "schedule_player");
  app.add_option("-c,--collective", o.collective, "the collective");
  app.add_option("-a,--algorithm", o.algorithm, "algorithm; default: the first in the table below");
  app.add_option("-w,--world", o.world, "number of ranks")->check(apps::whole(1, 16384));
  app.add_option("-n,--count", o.count, "elements of the work buffer [four per rank]")
      ->default_text("")
      ->check(apps::whole(0, 1LL << 50));
  app.add_option("-r,--root", o.root, "root of broadcast, reduce, gather, scatter");
  app.add_option("--ranks-per-node", o.ranks_per_node,
                 "for hierarchical: ranks in order fill one node after the other")
      ->default_text("")
      ->check(apps::whole(1, 16384));
  app.add_option("--element-size", o.element_size, "bytes of an element")->check(apps::whole(1, 8));
  app.add_option("--svg", o.svg, "also draw the schedule into this SVG file");
  app.add_flag("--check", o.check, "prove the schedule correct, or report what is wrong");
  app.add_flag("--run", o.run,
               "run the schedule with --slots slots, and report the ranks that never finish");
  app.add_option("--mistake", o.mistake, "first plant one of the mistakes listed below");
  app.add_flag("--simulate", o.simulate, "compute its time with the alpha-beta-gamma model:");
  app.add_option("--alpha", o.alpha_us, "  microseconds per message")->check(apps::real(0, 1e9));
  app.add_option("--bandwidth", o.bandwidth, "  GB/s of a link")->check(apps::above_zero(1e9));
  app.add_option("--reduce-bandwidth", o.reduce_bandwidth, "  GB/s of reduction")
      ->check(apps::above_zero(1e9));
  app.add_option("--overhead", o.overhead_us, "  microseconds per call")->check(apps::real(0, 1e9));
  app.add_option("--slots", o.slots,
                 "  messages that a connection holds; 0 (not with --simulate): a send ends when it "
                 "is received")
      ->check(apps::whole(0, 1024));
  app.add_option("--width", o.width, "columns of the table; 0: the terminal's")
      ->check(apps::whole(0, 10000));
  app.add_flag("-q,--quiet", o.quiet, "no table");
  app.add_flag("--json", o.json, "print only one run, as JSON");
  app.footer(table_of_algorithms());
  if (!app.parse(argc, argv)) return 0;

  const Collective collective = parse_collective(o.collective);
  const Algorithm algorithm = o.algorithm.empty() ? algorithms_of(collective).front()
                                                  : parse_algorithm(collective, o.algorithm);
  if (!app.given("--count")) o.count = 4 * static_cast<std::size_t>(o.world);
  require(contract_of(collective).rooted() || !app.given("--root"),
          fmt::format("--root {}: {} has no root", o.root, o.collective));
  require(o.slots > 0 || !o.simulate, "--slots 0: the model of --simulate needs at least one slot");
  require(o.mistake.empty() || !o.simulate || o.check || o.run || o.json,
          "--mistake and --simulate need --check or --run: a wrong schedule may never end");
  apps::require_writable(o.svg);
  const double bytes = static_cast<double>(o.count * o.element_size);
  Network network = Network::uniform({o.alpha_us * 1e-6, 1e-9 / o.bandwidth},
                                     1e-9 / o.reduce_bandwidth, o.overhead_us * 1e-6);
  network.slots = o.slots;

  // A large ring is simulated without its steps in memory; everything else needs the steps.
  const bool large = o.world > 256;
  const bool plain = !o.check && !o.run && !o.json && o.mistake.empty() && o.svg.empty();
  if (large && o.simulate && plain && collective == Collective::all_reduce &&
      algorithm == Algorithm::ring) {
    print_times(o, simulate_ring_all_reduce(o.world, o.count, o.element_size, network), bytes);
    return 0;
  }
  const bool logarithmic = algorithm == Algorithm::tree || algorithm == Algorithm::halving_doubling;
  const double rounds = logarithmic                           ? 30.0
                        : algorithm == Algorithm::double_tree ? 128.0
                        : algorithm == Algorithm::hierarchical && o.ranks_per_node > 0
                            ? 2.0 * (o.ranks_per_node + o.world / o.ranks_per_node)
                            : 2.0 * o.world;
  require(o.world * rounds <= kMaxSteps,
          fmt::format("{} on {} ranks has {:.0f} million steps, too many to write down: use fewer "
                      "ranks, a tree, or the ring with --simulate alone",
                      name_of(algorithm), o.world, o.world * rounds / 1e6));
  require(!(o.check || o.run || o.json) || !large,
          fmt::format("{} follows every contribution: at most 256 ranks, not {}",
                      o.check ? "--check"
                      : o.run ? "--run"
                              : "--json",
                      o.world));
  Schedule schedule = make_schedule(
      collective, algorithm, o.world, o.count, o.element_size, o.root,
      o.ranks_per_node > 0 ? nodes_of(o.world, o.ranks_per_node) : std::vector<int>{});

  if (!o.mistake.empty()) schedule = apps::with_mistake(schedule, o.mistake);

  if (o.json) {
    const auto findings = check(schedule, how_to_check(o));
    std::optional<Simulation> priced;
    if (o.simulate && findings.empty())
      priced = simulate(schedule, o.element_size, network, /*keep_events=*/true);
    fmt::print("{}\n", apps::as_json(schedule, apps::record_run(schedule, o.slots), findings,
                                     priced ? &*priced : nullptr));
    return findings.empty() ? 0 : 1;
  }

  const bool table = !o.quiet && o.world <= kMaxTableRanks && interpret(schedule, {}).empty();
  if (table || !o.svg.empty()) {
    const Playback playback = play(schedule);
    if (!o.svg.empty()) apps::write_file(o.svg, render_svg(schedule, playback));
    if (table) {
      const std::size_t width = o.width > 0 ? o.width : apps::terminal_width(100);
      fmt::print("{}", render_text(schedule, playback, {width, isatty(STDOUT_FILENO) != 0}));
    }
  }
  const Promise cost = counted_cost(schedule);
  fmt::print("{}{}: {} steps; elements sent: {} by the busiest rank, {} by all\n",
             table ? "\n" : "", title_of(schedule), cost.steps, cost.busiest, cost.total);
  if (!o.quiet && !table)
    fmt::print("no table: {}\n", o.world > kMaxTableRanks ? fmt::format("{} ranks are more than {}",
                                                                        o.world, kMaxTableRanks)
                                                          : "not every rank finishes");
  bool well = !o.check || check_and_report(schedule, o);
  if (o.run) well = run_and_report(schedule, o.slots) && well;
  if (!well) return 1;
  if (o.simulate) print_times(o, simulate(schedule, o.element_size, network), bytes);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program("schedule_player", [&] { return run(argc, argv); });
}
