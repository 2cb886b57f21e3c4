// by_hand: six intervals of one rank, overlapped as they were measured, and the same six one
// after the other. The arithmetic is the training programs'.
#include <algorithm>
#include <cstdio>

#include "labs/apps/train/step_time.hpp"

using namespace ringsmith::apps;

namespace {

void print(const char* name, const Intervals& pieces) {
  std::printf("  %-14s", name);
  for (const Interval i : pieces) std::printf("  %2ld to %-2ld", long(i.begin), long(i.end));
  std::printf("\n");
}

void report(const char* title, const Intervals& computation, const Intervals& communication) {
  const Intervals computing = unite(computation), communicating = unite(communication);
  const Intervals alone = subtract(communicating, computing);
  std::int64_t step = 0;
  for (const auto* pieces : {&computing, &communicating}) step = std::max(step, pieces->back().end);
  std::printf("%s: step %ld ms\n", title, long(step));
  print("computation", computation);
  print("communication", communication);
  print("exposed", alone);
  const double backward = double(computation[1].end - computation[1].begin);
  std::printf("  sums         computation %ld, communication %ld, (B-C)/B %.0f %%\n",
              long(length(computation)), long(length(communication)),
              100 * (1 - double(length(communication)) / backward));
  std::printf(
      "  unions       computation %ld, communication %ld, of it exposed %ld, hidden %.0f %%\n",
      long(length(computing)), long(length(communicating)), long(length(alone)),
      100 * (1 - double(length(alone)) / double(length(communicating))));
}

}  // namespace

int main() {
  // forward, backward, optimizer; three all-reduces
  report("overlapped", {{0, 4}, {4, 12}, {16, 18}}, {{7, 10}, {9, 13}, {13, 16}});
  report("serial", {{0, 4}, {4, 12}, {22, 24}}, {{12, 15}, {15, 19}, {19, 22}});
}
