// What is printed when training has ended: where the time went, memory, throughput, files.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "labs/apps/common/step_clock.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith::apps {

struct RankMemory {  // bytes
  double peak_resident = 0;
  double peak_tensors = 0;
  double peak_device = 0;  // tensors on the rank's GPU
};

struct Report {
  std::int64_t steps = 0;
  std::vector<trace::StepTime> time;  // of all steps together, by rank
  std::vector<RankMemory> memory;     // by rank
};

// Collective. device: of this rank's model.
[[nodiscard]] Report make_report(comm::ProcessGroup& group, const StepClock& clock, Device device);

// Milliseconds a step of each phase: mean over the ranks, slowest rank, share of the step. The
// phases add up to the step; the hidden part of communication is inside forward and backward.
[[nodiscard]] std::string time_table(const Report& report);
[[nodiscard]] std::string memory_line(const Report& report);
// Both, for --json.
[[nodiscard]] nlohmann::ordered_json to_json(const Report& report);

}  // namespace ringsmith::apps
