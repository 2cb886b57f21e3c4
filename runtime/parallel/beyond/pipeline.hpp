// Runs the stages of a pipeline schedule (runtime/comm/schedule/pipeline.hpp), one stage per rank.
//
//   stage s - 1            stage s               stage s + 1
//      F2  --activations-->   F2   --activations-->  F2
//      B1  <----gradient---   B1   <----gradient---  B1
//
//   Pipeline pipeline(stages, comm::one_forward_one_backward(stages->size(), 8));
//   pipeline.run({.forward = ..., .activation = {rows, tokens, dim}});
//   optimizer.step();
//
// A forward's result is sent as soon as it is computed, while the stage continues. Each direction
// between two neighbours has its own group, so that an activation never waits for a gradient. It
// holds one message: before a stage sends the next one, it waits for the previous one. The checker
// proves that a schedule cannot deadlock under this rule.
//
// Gradients accumulate in .grad in the order of the schedule's backwards. With the built-in
// schedules, they have the bits of one process that accumulates the same microbatches.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/comm/process_group.hpp"
#include "runtime/comm/schedule/pipeline.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

struct PipelineStep {
  // Runs this stage's layers on a microbatch. `input`: the previous stage's activations; undefined
  // on the first stage, which takes the microbatch from its own data. Returns the activations for
  // the next stage or, on the last stage, the microbatch's share of the loss.
  std::function<Tensor(int microbatch, const Tensor& input)> forward;
  Shape activation;  // of a microbatch, between stages; the same between all stages
  DType dtype = DType::f32;
  // Called on each stage before its last backward, whose gradients complete the step, with the
  // output from which that backward starts: DistributedDataParallel is armed here.
  std::function<void(const Tensor& output)> before_last_backward = {};
  double loss_scale = 1;  // factor of the last stage's first gradient (GradScaler)
};

class Pipeline {
 public:
  // Collective over `stages`, whose rank is the stage; the ranks must pass equal schedules. Throws
  // UsageError if the schedule has another number of stages.
  Pipeline(std::shared_ptr<comm::ProcessGroup> stages, comm::PipelineSchedule schedule);
  ~Pipeline();

  // Collective. Runs every action of this stage. Returns the sum of the losses on every stage.
  double run(const PipelineStep& step);
  // Collective. Runs `forward` without recording a graph, stage after stage. Returns the last
  // stage's result on every stage. activation: between stages; result: of the last stage.
  [[nodiscard]] Tensor evaluate(const std::function<Tensor(const Tensor& input)>& forward,
                                const Shape& activation, const Shape& result);

  [[nodiscard]] const comm::PipelineSchedule& schedule() const { return schedule_; }
  // Largest number of microbatches whose activations this stage has stored, over all runs.
  [[nodiscard]] int most_stored() const { return most_stored_; }

 private:
  struct Channel;
  std::shared_ptr<comm::ProcessGroup> stages_;
  comm::PipelineSchedule schedule_;
  std::vector<std::unique_ptr<Channel>> channels_;  // activations in, out; gradients in, out
  int most_stored_ = 0;
};

}  // namespace ringsmith
