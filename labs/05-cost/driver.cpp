// Evaluates the student's formulas, and plays messages on the kit's fabric.
#include LAB05_COST

#include "labs/kit/driver.hpp"

#include <vector>

#include "labs/kit/fabric/fabric.hpp"

namespace {

lab05::Machine machine_of(const kit::Request& in) {
  return {in.number("alpha"), in.number("beta"), in.number("gamma", 0)};
}

}  // namespace

// Evaluates all formulas for each (world, count) of a list.
KIT_SCENARIO(formulas) {
  const lab05::Machine machine = machine_of(in);
  const std::vector<std::int64_t> worlds = in.integers("worlds"), counts = in.integers("counts");
  std::vector<double> flat, tree, ring, crossover, least;
  std::vector<std::int64_t> rounds, best;
  const std::string only = in.text("only", "all");
  const auto wanted = [&](const char* what) { return only == "all" || only == what; };
  for (std::size_t i = 0; i < worlds.size(); ++i) {
    const lab05::Job job{int(worlds[i]), std::size_t(counts[i]),
                         std::size_t(in.integer("element"))};
    if (wanted("flat")) flat.push_back(flat_time(machine, job));
    if (wanted("tree")) tree.push_back(tree_time(machine, job));
    if (wanted("tree")) rounds.push_back(lab05::tree_rounds(job.world));
    if (wanted("ring")) ring.push_back(ring_time(machine, job));
    if (wanted("cheapest")) best.push_back(int(cheapest(machine, job)));
    if (wanted("crossover")) crossover.push_back(crossover_bytes(machine, job.world));
    if (wanted("least")) least.push_back(least_time(machine, job));
  }
  out.put("flat", flat);
  out.put("tree", tree);
  out.put("rounds", rounds);
  out.put("ring", ring);
  out.put("cheapest", best);
  out.put("crossover", crossover);
  out.put("least", least);
}

KIT_SCENARIO(messages) {
  std::vector<double> times;
  for (const double bytes : in.numbers("bytes"))
    times.push_back(message_time(machine_of(in), bytes));
  out.put("times", times);
}

KIT_SCENARIO(fits) {
  std::vector<lab05::Sample> samples;
  const std::vector<double> bytes = in.numbers("bytes"), seconds = in.numbers("seconds");
  for (std::size_t i = 0; i < bytes.size(); ++i) samples.push_back({bytes[i], seconds[i]});
  const std::vector<lab05::Sample> others = {{1, 3}, {2, 7}};
  (void)lab05::fit(others);  // must not affect the next fit
  const lab05::Machine machine = lab05::fit(samples);
  out.put("alpha", machine.alpha);
  out.put("beta", machine.beta);
  out.put("gamma", machine.gamma);
}

// Plays a list of calls: rank, to, out, from, in. -1 means no peer; counts are elements of 4 bytes.
KIT_SCENARIO(play) {
  const std::vector<std::int64_t> calls = in.integers("calls");
  kit::Fabric fabric(kit::fabric_options(in));
  fabric.run([&](kit::Link& link) {
    fabric.begin(link.rank(), "all_reduce");
    for (std::size_t at = 0; at + 5 <= calls.size(); at += 5) {
      if (calls[at] != link.rank()) continue;
      const int to = int(calls[at + 1]), from = int(calls[at + 3]);
      const auto sent = std::size_t(calls[at + 2]), expected = std::size_t(calls[at + 4]);
      std::vector<float> send(sent), receive(expected);
      if (to >= 0 && from >= 0)
        link.exchange(to, std::span<const float>(send), from, std::span<float>(receive));
      else if (to >= 0)
        link.send(to, std::span<const float>(send));
      else
        link.recv(from, std::span<float>(receive));
    }
  });
  fabric.observe(out);
}
