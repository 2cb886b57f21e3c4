// schedule_player: shows, draws, proves and prices the schedule of a collective. Needs no other
// rank: everything happens on paper.
#include <fmt/format.h>
#include <unistd.h>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"
#include "labs/apps/common/files.hpp"
#include "labs/apps/common/text.hpp"
#include "runtime/comm/analysis/checker.hpp"
#include "runtime/comm/analysis/credits.hpp"
#include "runtime/comm/analysis/player.hpp"
#include "runtime/comm/analysis/simulator.hpp"
#include "runtime/comm/schedule/select.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;

namespace {

struct Options {
  std::string collective = "all_reduce", algorithm, svg;
  int world = 4, root = 0, slots = 8, ranks_per_node = 0;
  std::size_t count = 0, element_size = 4;
  bool check = false, simulate = false, quiet = false;
  std::size_t width = 0;
  double alpha_us = 5, bandwidth = 10, reduce_bandwidth = 20, overhead_us = 0;
};

constexpr int kMaxTableRanks = 36;
constexpr double kMaxSteps = 2e7;  // of all ranks together, when written down

std::string table_of_algorithms() {
  std::string out = "\nCollectives and their algorithms (the first is the default):\n";
  for (const Collective collective : all_collectives()) {
    const std::string names = fmt::format("{}", fmt::join(algorithms_of(collective), ", "));
    out += fmt::format("  {:<16}{}\n", name_of(collective), apps::wrapped(names, 18));
  }
  return out +
         "\nReading the table:\n"
         "  c2 -> 3   sends chunk 2 to rank 3        c1 += 0   adds what rank 0 sends to chunk 1\n"
         "  c1 <- 0   replaces chunk 1 by what rank 0 sends; 'own': from this rank's own input\n"
         "  c2-5 -> 3   sends chunks 2 to 5 in one message\n"
         "  01.3      the chunk holds the contributions of ranks 0, 1 and 3\n"
         "\nExit codes: 0 done, 1 --check found a fault, 6 wrong options.\n";
}

bool check_and_report(const Schedule& schedule) {
  const auto findings = check(schedule);
  for (const Finding& finding : findings) fmt::print("FAULT  {}\n", finding.describe());
  if (!findings.empty()) return false;
  const auto runs = [&](LinkModel wires) { return interpret(schedule, wires).empty(); };
  const CreditReport mapped = check_credits(schedule);
  fmt::print(
      "proved: {}: every promised chunk holds every contribution exactly once;\n"
      "        messages match in order; finishes with 1, 2 and 8 slots a connection\n",
      title_of(schedule));
  fmt::print("        without slots (rendezvous): {}\n",
             runs({0, false}) ? "finishes" : "deadlocks, because all ranks send first");
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
  CLI::App app("Shows who sends what at each step of a collective; draws, proves and prices it.",
               "schedule_player");
  app.option_defaults()->always_capture_default()->take_last();
  app.add_option("-c,--collective", o.collective, "what is computed");
  app.add_option("-a,--algorithm", o.algorithm, "algorithm; default: the first in the table below");
  app.add_option("-w,--world", o.world, "number of ranks")->check(apps::whole(1, 16384));
  app.add_option("-n,--count", o.count, "elements of the work buffer [four for each rank]")
      ->always_capture_default(false)
      ->check(apps::whole(0, 1LL << 50));
  app.add_option("-r,--root", o.root, "root of broadcast, reduce, gather, scatter");
  app.add_option("--ranks-per-node", o.ranks_per_node,
                 "ranks 0.. fill one node after the other, for hierarchical")
      ->always_capture_default(false)
      ->check(apps::whole(1, 16384));
  app.add_option("--element-size", o.element_size, "bytes")->check(apps::whole(1, 8));
  app.add_option("--svg", o.svg, "also draw it to this file");
  app.add_flag("--check", o.check, "prove it correct, or say what is wrong");
  app.add_flag("--simulate", o.simulate, "price it with the alpha-beta-gamma model:");
  app.add_option("--alpha", o.alpha_us, "  microseconds a message")->check(apps::real(0, 1e9));
  app.add_option("--bandwidth", o.bandwidth, "  of a link, GB/s")->check(apps::above_zero(1e9));
  app.add_option("--reduce-bandwidth", o.reduce_bandwidth, "  of adding, GB/s")
      ->check(apps::above_zero(1e9));
  app.add_option("--overhead", o.overhead_us, "  microseconds a call")->check(apps::real(0, 1e9));
  app.add_option("--slots", o.slots, "  messages a connection holds")->check(apps::whole(1, 1024));
  app.add_option("--width", o.width, "columns of the table; 0: the terminal's")
      ->check(apps::whole(0, 10000));
  app.add_flag("-q,--quiet", o.quiet, "no table");
  app.footer(table_of_algorithms());
  if (!apps::parse_command_line(app, argc, argv)) return 0;

  const Collective collective = parse_collective(o.collective);
  if (o.algorithm.empty()) o.algorithm = algorithms_of(collective).front();
  if (app.count("--count") == 0) o.count = 4 * static_cast<std::size_t>(o.world);
  require(contract_of(collective).rooted() || app.count("--root") == 0,
          fmt::format("--root {}: {} has no root", o.root, o.collective));
  const double bytes = static_cast<double>(o.count * o.element_size);
  Network network = Network::uniform({o.alpha_us * 1e-6, 1e-9 / o.bandwidth},
                                     1e-9 / o.reduce_bandwidth, o.overhead_us * 1e-6);
  network.slots = o.slots;

  // A large ring is simulated without writing its steps down; everything else needs them.
  const bool large = o.world > 256;
  if (large && o.simulate && !o.check && o.svg.empty() && collective == Collective::all_reduce &&
      o.algorithm == "ring") {
    print_times(o, simulate_ring_all_reduce(o.world, o.count, o.element_size, network), bytes);
    return 0;
  }
  const bool logarithmic = o.algorithm == "tree" || o.algorithm == "halving_doubling";
  const double rounds = logarithmic                    ? 30.0
                        : o.algorithm == "double_tree" ? 128.0
                        : o.algorithm == "hierarchical" && o.ranks_per_node > 0
                            ? 2.0 * (o.ranks_per_node + o.world / o.ranks_per_node)
                            : 2.0 * o.world;
  require(o.world * rounds <= kMaxSteps,
          fmt::format("{} on {} ranks has {:.0f} million steps, too many to write down: use fewer "
                      "ranks, a tree, or the ring with --simulate alone",
                      o.algorithm, o.world, o.world * rounds / 1e6));
  require(!o.check || !large,
          fmt::format("--check follows every contribution: at most 256 ranks, not {}", o.world));
  const Schedule schedule = make_schedule(
      collective, o.algorithm, o.world, o.count, o.element_size, o.root,
      o.ranks_per_node > 0 ? nodes_of(o.world, o.ranks_per_node) : std::vector<int>{});

  const bool table = !o.quiet && o.world <= kMaxTableRanks;
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
    fmt::print("no table: {} ranks are more than {}\n", o.world, kMaxTableRanks);
  if (o.check && !check_and_report(schedule)) return 1;
  if (o.simulate) print_times(o, simulate(schedule, o.element_size, network), bytes);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program("schedule_player", [&] { return run(argc, argv); });
}
