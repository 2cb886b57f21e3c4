// sendrecv_perf: the time of a shift around the ring: to the next rank, from the one before.
// Even ranks send first and odd ranks receive first, so that no ring of senders can form.
#include "labs/apps/common/perf.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;

int main(int argc, char** argv) {
  Benchmark b;
  b.name = "sendrecv_perf";
  b.description =
      "Measures send and recv: every rank sends to the next one and receives from the one before.";
  b.predicted = false;
  b.in_place = false;
  b.least_world = 2;
  b.input_parts = b.output_parts = one_part;
  b.bus_factor = [](int) { return 1.0; };
  b.run = [](auto& group, auto in, auto out, auto, int) {
    const int rank = group.rank(), world = group.size();
    const int next = comm::wrap(rank + 1, world), previous = comm::wrap(rank - 1, world);
    if (rank % 2 == 0) group.send(in, next);
    group.recv(out, previous);
    if (rank % 2 == 1) group.send(in, next);
  };
  b.has_result = [](int, int) { return true; };
  b.expected = [](int rank, int world, std::size_t, int, std::size_t i) {
    return Expected{comm::wrap(rank - 1, world), i};
  };
  return run_benchmark(b, argc, argv);
}
