// pingpong: alpha and beta between two ranks, from the time of a message there and back.
//
//     ringrun --standalone --no-prefix --nproc-per-node 2 -- lesson05_pingpong
//
// Rank 0 sends, and rank 1 sends the same back; half of the round trip is one message. The smallest
// and the largest size give alpha and beta; the sizes between show how well the straight line
// fits.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/comm/process_group.hpp"

using namespace ringsmith;

// Returns the fastest of five, in microseconds: disturbances only make a measurement longer.
double message_time(comm::ProcessGroup& group, std::span<float> data) {
  using Clock = std::chrono::steady_clock;
  double best = 1e12;
  for (int run = 0; run < 5; ++run) {
    const auto begin = Clock::now();
    if (group.rank() == 0) group.send(data, 1);
    if (group.rank() <= 1) group.recv(data, 1 - group.rank());
    if (group.rank() == 1) group.send(data, 0);
    const std::chrono::duration<double, std::micro> taken = Clock::now() - begin;
    best = std::min(best, taken.count() / 2);
  }
  return best;
}

int main() try {
  const auto group = comm::init_process_group();
  if (group->size() != 2) throw UsageError("a ping-pong needs 2 ranks");
  const std::vector<std::size_t> sizes = {4, 1024, 16384, 131072, 1048576, 4194304};
  std::vector<double> times(sizes.size(), 1e12);
  std::vector<float> data(sizes.back() / sizeof(float), 1.0f);
  for (int round = 0; round < 8; ++round)  // all sizes in turn: a busy moment affects all of them
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::span<float> message = std::span(data).first(sizes[i] / sizeof(float));
      times[i] = std::min(times[i], message_time(*group, message));
    }
  if (group->rank() != 0) return 0;
  const double alpha = times.front();
  const double beta = (times.back() - times.front()) / static_cast<double>(sizes.back());
  std::printf("alpha %.2f us, beta %.6f us a byte: %.2f GB/s\n", alpha, beta, 1e-3 / beta);
  std::printf("%10s %12s %12s %8s\n", "bytes", "measured us", "predicted us", "ratio");
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const double predicted = alpha + beta * static_cast<double>(sizes[i]);
    std::printf("%10zu %12.2f %12.2f %8.2f\n", sizes[i], times[i], predicted, predicted / times[i]);
  }
} catch (const Error& error) {
  std::fprintf(stderr, "pingpong: %s\n", error.what());
  return 1;
}
