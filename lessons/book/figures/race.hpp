// The kernel of book_race, declared without CUDA: race.cu contains only code that nvcc and the
// emulator compile.
#pragma once

#include <vector>

namespace ringsmith::book {

constexpr int kMostThreads = 8;

enum class What { writes, waits, passes, reads };

// One action of a thread.
struct Moment {
  int thread;
  What what;
  int place, value;  // of shared memory; nothing where a thread waits or passes
};

// The number that a thread leaves in its place.
[[nodiscard]] constexpr int number_of(int thread) { return 10 * (thread + 1); }

// Runs one block of this many threads; each leaves its number and reads its neighbour's. Returns
// the actions in their order.
[[nodiscard]] std::vector<Moment> record_race(int threads, bool barrier);

}  // namespace ringsmith::book
