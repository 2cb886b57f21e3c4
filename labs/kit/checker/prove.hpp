// The runtime's own checker, for schedules of labs: it proves that an all-reduce leaves the sum of
// all ranks, each counted once, in every chunk of every rank, and that nobody waits forever; or it
// says what is wrong, and where. It moves no data: what it proves holds for all counts and timings.
#pragma once

#include <string>
#include <vector>

namespace kit {

// What one rank does at one step: it sends a chunk while it receives one, which it adds to its own
// (adds), or puts in its place.
struct ScheduleStep {
  int to = 0, send_chunk = 0, from = 0, recv_chunk = 0;
  bool adds = false;
};
struct Schedule {
  int world = 1;
  int chunks = 1;
  std::vector<std::vector<ScheduleStep>> steps;  // [rank][step]
};

// Empty: proved. Else the checker's first sentence: "rank 2, step 3: missing: ..."
[[nodiscard]] std::string fault_of(const Schedule& schedule);
// As programs of the runtime read it: train_gpt --schedule FILE.
[[nodiscard]] std::string text_of(const Schedule& schedule);

}  // namespace kit
