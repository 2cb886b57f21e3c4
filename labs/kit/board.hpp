// A process publishes its waits on a board in shared memory, which its parent reads. There are no
// locks, so a process killed during an update leaves at worst a half-updated entry.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "labs/kit/counter.hpp"
#include "labs/kit/waits.hpp"

namespace kit {

struct Board {
  std::atomic<std::uint64_t> moves;     // number of completed waits plus publishes
  std::atomic<std::uint64_t> waits;     // number of waits begun
  std::atomic<const Counter*> counter;  // awaited; null: none; same address in all processes
  std::atomic<std::uint64_t> wanted;
  std::atomic<int> peer;
  std::atomic<int> sequence;  // index of the current operation
  std::atomic<bool> done;
  char what[24];
  char operation[24];
};

struct Self {
  Board* board = nullptr;
  bool pauses = false;
  std::uint64_t state = 1;  // of the pauses' random number generator
};
Self& self();

[[nodiscard]] std::vector<Wait> waits_of(const Board* boards, int world);
// True if all processes that are not done wait for counts that are too low, and none moved during
// the check.
[[nodiscard]] bool all_stuck(const Board* boards, int world);

}  // namespace kit
