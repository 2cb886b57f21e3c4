#include "runtime/comm/schedule/pipeline.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

namespace {

PipelineSchedule without_actions(const char* name, int stages, int microbatches) {
  require(stages >= 1, std::string(name) + ": a pipeline needs at least one stage, got " +
                           std::to_string(stages));
  require(microbatches >= 1, std::string(name) +
                                 ": a pipeline needs at least one microbatch, got " +
                                 std::to_string(microbatches));
  return {name, stages, microbatches, std::vector<std::vector<StageAction>>(at(stages))};
}

}  // namespace

PipelineSchedule gpipe(int stages, int microbatches) {
  PipelineSchedule out = without_actions("gpipe", stages, microbatches);
  for (auto& actions : out.actions)
    for (const PipelinePass pass : {PipelinePass::forward, PipelinePass::backward})
      for (int m = 0; m < microbatches; ++m) actions.push_back({m, pass});
  return out;
}

PipelineSchedule one_forward_one_backward(int stages, int microbatches) {
  PipelineSchedule out = without_actions("1f1b", stages, microbatches);
  for (int s = 0; s < stages; ++s) {
    // Stage s runs as many forwards as there are stages after it, before its first backward can
    // arrive. From then on each forward is followed by the backward that frees its memory.
    const int ahead = std::min(stages - 1 - s, microbatches);
    auto& actions = out.actions[at(s)];
    for (int m = 0; m < microbatches + ahead; ++m) {
      if (m < microbatches) actions.push_back({m, PipelinePass::forward});
      if (m >= ahead) actions.push_back({m - ahead, PipelinePass::backward});
    }
  }
  return out;
}

PipelineSchedule pipeline_schedule(std::string_view name, int stages, int microbatches) {
  if (name == "gpipe") return gpipe(stages, microbatches);
  if (name == "1f1b") return one_forward_one_backward(stages, microbatches);
  throw UsageError("'" + std::string(name) + "' is not a pipeline schedule; choose gpipe or 1f1b");
}

int source_of(const PipelineSchedule& schedule, int stage, PipelinePass pass) {
  const int source = pass == PipelinePass::forward ? stage - 1 : stage + 1;
  return source >= 0 && source < schedule.stages ? source : kNobody;
}

int target_of(const PipelineSchedule& schedule, int stage, PipelinePass pass) {
  return source_of(schedule, stage,
                   pass == PipelinePass::forward ? PipelinePass::backward : PipelinePass::forward);
}

}  // namespace ringsmith::comm
