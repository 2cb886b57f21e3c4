// The runtime's own checker, for schedules of labs: it proves that an all-reduce leaves the sum of
// all ranks, each counted once, in every chunk of every rank, and that no rank waits forever; or it
// reports the fault and its place. It moves no data, so a proof holds for all counts and timings.
#pragma once

#include <string>
#include <vector>

namespace kit {

// One step of one rank: it sends a chunk and at the same time receives a chunk, which it adds to
// its own chunk (if adds) or copies over it.
struct ScheduleStep {
  int to = 0, send_chunk = 0, from = 0, recv_chunk = 0;
  bool adds = false;
};
struct Schedule {
  int world = 1;
  int chunks = 1;
  std::vector<std::vector<ScheduleStep>> steps;  // [rank][step]
};

// Returns the checker's first finding: "rank 2, step 3: missing: ..."; empty if the proof succeeds.
[[nodiscard]] std::string fault_of(const Schedule& schedule);
// Returns the schedule in the format that the runtime's programs read: train_gpt --schedule FILE.
[[nodiscard]] std::string text_of(const Schedule& schedule);

}  // namespace kit
