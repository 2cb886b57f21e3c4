// gather_perf: the time of a gather.
#include "labs/apps/common/perf.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;

int main(int argc, char** argv) {
  Benchmark b;
  b.name = "gather_perf";
  b.description = "Measures gather: root ends with the parts of all ranks.";
  b.collective = comm::Collective::gather;
  b.rooted = true;
  b.input_parts = one_part;
  b.output_parts = world_parts;
  b.bus_factor = [](int n) { return 1.0 * (n - 1) / n; };
  b.run = [](auto& group, auto in, auto out, auto, int root) { group.gather(in, out, root); };
  b.has_result = [](int rank, int root) { return rank == root; };
  b.expected = [](int, int, std::size_t part, int, std::size_t i) {
    return Expected{static_cast<int>(i / part), i % part};
  };
  return run_benchmark(b, argc, argv);
}
