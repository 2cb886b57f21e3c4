// reduce_scatter_perf: the time of a reduce-scatter.
#include "labs/apps/common/perf.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;

int main(int argc, char** argv) {
  Benchmark b;
  b.name = "reduce_scatter_perf";
  b.description = "Measures reduce_scatter: rank r ends with part r of the sum over all ranks.";
  b.collective = comm::Collective::reduce_scatter;
  b.reduces = true;
  b.input_parts = world_parts;
  b.output_parts = one_part;
  b.bus_factor = [](int n) { return 1.0 * (n - 1) / n; };
  b.run = [](auto& group, auto in, auto out, auto op, int) { group.reduce_scatter(in, out, op); };
  b.has_result = [](int, int) { return true; };
  b.expected = [](int rank, int, std::size_t part, int, std::size_t i) {
    return Expected{-1, static_cast<std::size_t>(rank) * part + i};
  };
  return run_benchmark(b, argc, argv);
}
