// broadcast_perf: the time of a broadcast. It is in place by nature.
#include "labs/apps/common/perf.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;

int main(int argc, char** argv) {
  Benchmark b;
  b.name = "broadcast_perf";
  b.description = "Measures broadcast: every rank ends with the values of root.";
  b.collective = comm::Collective::broadcast;
  b.rooted = true;
  b.out_of_place = false;
  b.input_parts = b.output_parts = one_part;
  b.bus_factor = [](int n) { return n > 1 ? 1.0 : 0.0; };
  b.run = [](auto& group, auto, auto out, auto, int root) { group.broadcast(out, root); };
  b.has_result = [](int, int) { return true; };
  b.expected = [](int, int, std::size_t, int root, std::size_t i) { return Expected{root, i}; };
  return run_benchmark(b, argc, argv);
}
