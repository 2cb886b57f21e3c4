// all_gather_perf: the time of an all-gather.
#include "labs/apps/common/perf.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;

int main(int argc, char** argv) {
  Benchmark b;
  b.name = "all_gather_perf";
  b.description = "Measures all_gather: every rank ends with the parts of all ranks.";
  b.collective = comm::Collective::all_gather;
  b.input_parts = one_part;
  b.output_parts = world_parts;
  b.bus_factor = [](int n) { return 1.0 * (n - 1) / n; };
  b.run = [](auto& group, auto in, auto out, auto, int) { group.all_gather(in, out); };
  b.has_result = [](int, int) { return true; };
  b.expected = [](int, int, std::size_t part, int, std::size_t i) {
    return Expected{static_cast<int>(i / part), i % part};
  };
  return run_benchmark(b, argc, argv);
}
