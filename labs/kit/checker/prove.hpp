// Applies the runtime's checker to the schedules of labs. It proves that an all-reduce leaves the
// sum of all ranks, each counted once, in every chunk of every rank, and that no rank waits
// forever. It moves no data, so a proof holds for all counts and timings.
#pragma once

#include <string>
#include <vector>

namespace kit {

// One step of one rank: it sends a chunk and simultaneously receives a chunk, which it adds to its
// own chunk (if adds) or copies over it.
struct ScheduleStep {
  int to = 0, send_chunk = 0, from = 0, recv_chunk = 0;
  bool adds = false;
};
struct Schedule {
  int world = 1;
  int chunks = 1;
  std::vector<std::vector<ScheduleStep>> steps;  // [rank][step]
};

// Returns the checker's first finding ("rank 2, step 3: missing: ..."), or "" if the proof
// succeeds.
[[nodiscard]] std::string fault_of(const Schedule& schedule);
// Returns the schedule in the format of train_gpt --schedule FILE.
[[nodiscard]] std::string text_of(const Schedule& schedule);

}  // namespace kit
