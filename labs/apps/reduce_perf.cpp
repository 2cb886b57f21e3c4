// reduce_perf: the time of a reduce.
#include "labs/apps/common/perf.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;

int main(int argc, char** argv) {
  Benchmark b;
  b.name = "reduce_perf";
  b.description = "Measures reduce: root ends with the sum over all ranks.";
  b.collective = comm::Collective::reduce;
  b.reduces = true;
  b.rooted = true;
  b.input_parts = b.output_parts = one_part;
  b.bus_factor = [](int n) { return n > 1 ? 1.0 : 0.0; };
  b.run = [](auto& group, auto in, auto out, auto op, int root) {
    group.reduce(in, out, op, root);
  };
  b.has_result = [](int rank, int root) { return rank == root; };
  b.expected = [](int, int, std::size_t, int, std::size_t i) { return Expected{-1, i}; };
  return run_benchmark(b, argc, argv);
}
