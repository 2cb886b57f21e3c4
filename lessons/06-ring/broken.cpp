// broken: the ring on four ranks with five common mistakes, and the checker's findings.
//
// Each mistake changes a correct schedule, or the slots between the ranks; nothing is sent.
#include <cstdio>

#include "runtime/analysis/checker.hpp"
#include "runtime/comm/schedule/ring.hpp"

using namespace ringsmith::comm;

constexpr int kRanks = 4;
constexpr std::size_t kNumbers = 18;  // not a multiple of 4

template <class Change>
Schedule with_every_step(Change change) {
  Schedule ring = ring_all_reduce(kRanks, kNumbers);
  for (auto& steps : ring.steps)
    for (std::size_t s = 0; s < steps.size(); ++s) change(steps[s], s);
  return ring;
}

Schedule owner_off_by_one() {  // the second half starts with the wrong chunk
  return with_every_step([](Step& step, std::size_t s) {
    if (s < kRanks - 1) return;
    step.send_chunk = wrap(step.send_chunk + 1, kRanks);
    step.recv_chunk = wrap(step.recv_chunk + 1, kRanks);
  });
}

Schedule adds_to_the_end() {  // the second half adds, where it should replace
  return with_every_step([](Step& step, std::size_t) { step.action = Action::reduce; });
}

Schedule one_step_short() {
  Schedule ring = ring_all_reduce(kRanks, kNumbers);
  for (auto& steps : ring.steps) steps.pop_back();
  return ring;
}

Schedule remainder_dropped() {  // 18 / 4 = 4, and 2 numbers are in no chunk
  Schedule ring = ring_all_reduce(kRanks, kNumbers);
  for (std::size_t c = 0; c < kRanks; ++c)
    ring.chunks[c] = {c * (kNumbers / kRanks), kNumbers / kRanks};
  return ring;
}

void examine(const char* mistake, const Schedule& schedule, const CheckOptions& options = {}) {
  const auto findings = check(schedule, options);
  std::printf("%s: findings: %zu\n", mistake, findings.size());
  if (!findings.empty()) std::printf("    %s\n", findings[0].describe().c_str());
}

int main() {
  examine("no mistake", ring_all_reduce(kRanks, kNumbers));
  examine("owner off by one", owner_off_by_one());
  examine("adds to the end", adds_to_the_end());
  examine("one step short", one_step_short());
  examine("remainder dropped", remainder_dropped());
  CheckOptions no_slots;
  no_slots.wires = {{0, false}};
  examine("no slots", ring_all_reduce(kRanks, kNumbers), no_slots);
}
