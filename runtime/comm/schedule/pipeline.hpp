// Pipeline parallelism as data: each stage holds some layers of the model, and a schedule says in
// which order it runs the forward and backward passes of the microbatches.
//
//   GPipe, 3 stages, 4 microbatches: all forwards, then all backwards
//
//     stage 0   F0 F1 F2 F3  .  .  .  . B0 B1 B2 B3
//     stage 1    . F0 F1 F2 F3  .  . B0 B1 B2 B3  .
//     stage 2    .  . F0 F1 F2 F3 B0 B1 B2 B3  .  .
//
//   1F1B: a stage starts backwards as early as it can, then alternates one forward, one backward
//
//     stage 0   F0 F1 F2  .  . B0 F3 B1  . B2  . B3
//     stage 1    . F0 F1  . B0 F2 B1 F3 B2  . B3  .
//     stage 2    .  . F0 B0 F1 B1 F2 B2 F3 B3  .  .
//
// A forward of stage s > 0 receives the microbatch's activations from stage s - 1; a backward of
// stage s < p - 1 receives their gradient from stage s + 1. Every stage idles for p - 1 forwards
// and p - 1 backwards, whichever schedule is used: the bubble is (p - 1) / (m + p - 1) of the time.
// Stored activations differ: a stage keeps a microbatch from its forward to its backward.
//
// | schedule | most microbatches stored by stage s | bubble                |
// |----------|-------------------------------------|-----------------------|
// | gpipe    | m                                   | (p - 1) / (m + p - 1) |
// | 1f1b     | min(m, p - s)                       | (p - 1) / (m + p - 1) |
//
// Backwards run in the order of the microbatches, so the gradients are added in the same order as
// in one process that accumulates them. runtime/analysis/pipeline.hpp proves and prices a schedule;
// runtime/parallel/beyond/pipeline.hpp runs it.
//
// Huang et al., "GPipe", NeurIPS 2019. Narayanan et al., "Efficient large-scale language model
// training on GPU clusters using Megatron-LM", SC 2021.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

enum class PipelinePass : std::uint8_t { forward, backward };

// One pass of one microbatch, on one stage.
struct StageAction {
  int microbatch = 0;
  PipelinePass pass = PipelinePass::forward;
  bool operator==(const StageAction&) const = default;
};

struct PipelineSchedule {
  std::string name;
  int stages = 1, microbatches = 1;
  std::vector<std::vector<StageAction>> actions;  // [stage], in the order of execution
};

// Both throw UsageError unless stages >= 1 and microbatches >= 1.
[[nodiscard]] PipelineSchedule gpipe(int stages, int microbatches);
[[nodiscard]] PipelineSchedule one_forward_one_backward(int stages, int microbatches);
// "gpipe" or "1f1b"; throws UsageError for other names.
[[nodiscard]] PipelineSchedule pipeline_schedule(std::string_view name, int stages,
                                                 int microbatches);

// The peer from which an action receives, or to which it sends; kNobody at the ends.
[[nodiscard]] int source_of(const PipelineSchedule& schedule, int stage, PipelinePass pass);
[[nodiscard]] int target_of(const PipelineSchedule& schedule, int stage, PipelinePass pass);

}  // namespace ringsmith::comm
