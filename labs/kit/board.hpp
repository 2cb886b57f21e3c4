// Where a process says what it waits for, in memory that its parent reads. Plain atomics: a process
// that is killed in the middle leaves at worst an old line.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "labs/kit/counter.hpp"
#include "labs/kit/waits.hpp"

namespace kit {

struct Board {
  std::atomic<std::uint64_t> moves;     // grows with every wait that ends and every publish
  std::atomic<std::uint64_t> waits;     // grows with every wait that begins
  std::atomic<const Counter*> counter;  // null: it runs. All processes have it at the same address
  std::atomic<std::uint64_t> wanted;
  std::atomic<int> peer;
  std::atomic<int> sequence;  // operations begun, less one
  std::atomic<bool> done;
  char what[24];
  char operation[24];
};

// The board of this process, and how it pauses; set once after the fork.
struct Self {
  Board* board = nullptr;
  bool pauses = false;
  std::uint64_t state = 1;  // of the pauses' random numbers
};
Self& self();

[[nodiscard]] std::vector<Wait> waits_of(const Board* boards, int world);
// True when it is certain that nobody can go on: all who are not done wait, for counts that are too
// low, and none of them moved while that was looked at.
[[nodiscard]] bool all_stuck(const Board* boards, int world);

}  // namespace kit
