// scatter_perf: the time of a scatter.
#include "labs/apps/common/perf.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;

int main(int argc, char** argv) {
  Benchmark b;
  b.name = "scatter_perf";
  b.description = "Measures scatter: rank r ends with part r of root.";
  b.collective = comm::Collective::scatter;
  b.rooted = true;
  b.input_parts = world_parts;
  b.output_parts = one_part;
  b.bus_factor = [](int n) { return 1.0 * (n - 1) / n; };
  b.run = [](auto& group, auto in, auto out, auto, int root) { group.scatter(in, out, root); };
  b.has_result = [](int, int) { return true; };
  b.expected = [](int rank, int, std::size_t part, int root, std::size_t i) {
    return Expected{root, static_cast<std::size_t>(rank) * part + i};
  };
  return run_benchmark(b, argc, argv);
}
