// The kernel of book_race, behind a door that needs no CUDA: race.cu has nothing but what nvcc and
// the emulator compile.
#pragma once

#include <vector>

namespace ringsmith::book {

constexpr int kMostThreads = 8;

enum class What { writes, waits, passes, reads };

// One thread's doing, in the order in which they were done.
struct Moment {
  int thread;
  What what;
  int place, value;  // of shared memory; nothing where a thread waits or passes
};

// What thread t leaves in its place.
[[nodiscard]] constexpr int number_of(int thread) { return 10 * (thread + 1); }

// One block of so many threads: each leaves its number and reads its neighbour's.
[[nodiscard]] std::vector<Moment> record_race(int threads, bool barrier);

}  // namespace ringsmith::book
