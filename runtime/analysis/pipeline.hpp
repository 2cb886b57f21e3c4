// Proves that a pipeline schedule trains every microbatch exactly once and never hangs, and
// computes the time and the memory that it needs.
//
// 1. shape      stages and microbatches exist; each stage runs each pass of each microbatch once
// 2. order      a stage runs the backward of a microbatch after its forward
// 3. messages   the n-th activation (gradient) that a stage sends is the n-th that its neighbour
//               expects: messages carry no number
// 4. progress   all stages finish, if a connection holds `slots` messages. With 0 slots (a send
//               ends when its receive has begun), 1F1B deadlocks: one stage sends an activation
//               while its neighbour sends it a gradient. The executor gives each direction one slot
// 5. memory     no stage stores more microbatches than allowed
//
// Each part relies on the parts before it, so checking stops after the first part that finds a
// fault. Violation::rank is a stage, Violation::step an action of that stage.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/analysis/checker.hpp"
#include "runtime/analysis/simulator.hpp"
#include "runtime/comm/schedule/pipeline.hpp"

namespace ringsmith::comm {

struct PipelineCheckOptions {
  std::vector<int> slots = {1, 2};  // messages that a connection holds; progress is proved for each
  int most_stored = 0;              // microbatches of any stage; 0: unlimited
};

// Returns an empty list if the schedule is proved correct.
[[nodiscard]] std::vector<Violation> check(const PipelineSchedule& schedule,
                                           const PipelineCheckOptions& options = {});

// Returns, for each stage, the largest number of microbatches whose forward has run and whose
// backward has not.
[[nodiscard]] std::vector<int> most_stored(const PipelineSchedule& schedule);

// Returns the schedule's messages as a schedule of sends and receives, for interpret(). Step 2 a of
// stage s is the receive of its a-th action, step 2 a + 1 the send; both are idle at the ends of
// the pipeline.
[[nodiscard]] Schedule messages_of(const PipelineSchedule& schedule);

struct PipelineCost {
  double forward = 1, backward = 2;  // seconds per microbatch and stage
  Link link = {};                    // between neighbours
  double bytes = 0;                  // of one microbatch's activations, or of their gradient
  int slots = 1;                     // messages that a connection holds, >= 1
};

struct StageEvent {
  int stage = 0;
  StageAction action;
  double began = 0, finished = 0;  // seconds
};

struct PipelineSimulation {
  double seconds = 0;              // until the last stage has finished
  double bubble = 0;               // share of the stages' time in which they do not compute
  std::vector<StageEvent> events;  // by stage, in order
};

// Simulates a schedule that the checker accepts. Messages travel while the stages compute. Throws
// UsageError if the schedule does not finish.
[[nodiscard]] PipelineSimulation simulate(const PipelineSchedule& schedule,
                                          const PipelineCost& cost = {});

// (p - 1) / (m + p - 1): the bubble if every stage takes the same time and messages take none.
[[nodiscard]] double ideal_bubble(int stages, int microbatches);

// Draws the schedule as in runtime/comm/schedule/pipeline.hpp: one line for each stage, one column
// for each pass, which takes one unit of time.
[[nodiscard]] std::string draw(const PipelineSchedule& schedule);

}  // namespace ringsmith::comm
