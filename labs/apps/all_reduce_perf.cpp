// all_reduce_perf: the time of an all-reduce, beside what the cost model predicts.
#include "labs/apps/common/perf.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;

int main(int argc, char** argv) {
  Benchmark b;
  b.name = "all_reduce_perf";
  b.description = "Measures all_reduce: every rank ends with the sum over all ranks.";
  b.collective = comm::Collective::all_reduce;
  b.reduces = true;
  b.input_parts = b.output_parts = one_part;
  b.bus_factor = [](int n) { return 2.0 * (n - 1) / n; };
  b.run = [](auto& group, auto in, auto out, auto op, int) { group.all_reduce(in, out, op); };
  b.has_result = [](int, int) { return true; };
  b.expected = [](int, int, std::size_t, int, std::size_t i) { return Expected{-1, i}; };
  return run_benchmark(b, argc, argv);
}
