// alltoall_perf: the time of an all-to-all.
#include "labs/apps/common/perf.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;

int main(int argc, char** argv) {
  Benchmark b;
  b.name = "alltoall_perf";
  b.description = "Measures all_to_all: part p of rank r goes to part r of rank p.";
  b.collective = comm::Collective::all_to_all;
  b.input_parts = b.output_parts = world_parts;
  b.bus_factor = [](int n) { return 1.0 * (n - 1) / n; };
  b.run = [](auto& group, auto in, auto out, auto, int) { group.all_to_all(in, out); };
  b.has_result = [](int, int) { return true; };
  b.expected = [](int rank, int, std::size_t part, int, std::size_t i) {
    return Expected{static_cast<int>(i / part), static_cast<std::size_t>(rank) * part + i % part};
  };
  return run_benchmark(b, argc, argv);
}
