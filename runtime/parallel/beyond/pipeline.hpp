// Runs the stages of a pipeline schedule (runtime/comm/schedule/pipeline.hpp), one stage per rank.
//
//   stage s - 1            stage s               stage s + 1
//      F2  --activations-->   F2   --activations-->  F2
//      B1  <----gradient---   B1   <----gradient---  B1
//
//   Pipeline pipeline(stages);
//   const auto schedule = comm::one_forward_one_backward(stages->size(), microbatches);
//   double loss = pipeline.run(schedule, {.forward = ..., .activation = {rows, tokens, dim}});
//   optimizer.step();
//
// A forward's result is sent as soon as it is computed, while the stage continues. Each direction
// between two neighbours has its own group, so that an activation never waits for a gradient. A
// group holds one message: before a stage sends the next message, it waits for the previous one to
// be received. The checker proves that a schedule cannot deadlock under this rule. With a blocking
// send in place of send_async, 1F1B deadlocks as soon as activations exceed a connection's memory.
//
// Gradients accumulate in .grad in the order of the schedule's backwards. With the built-in
// schedules, they have the bits of one process that accumulates the same microbatches.
#pragma once

#include <functional>
#include <memory>

#include "runtime/comm/process_group.hpp"
#include "runtime/comm/schedule/pipeline.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

struct PipelineStep {
  // Runs this stage's layers on a microbatch. `input`: the previous stage's activations; undefined
  // on the first stage, which takes the microbatch from its own data. Returns the activations for
  // the next stage or, on the last stage, the microbatch's share of the loss.
  std::function<Tensor(int microbatch, const Tensor& input)> forward;
  Shape activation;            // of a microbatch, between stages; the same between all stages
  TensorOptions options = {};  // of the activations
  // Called on each stage before its last backward, whose gradients complete the step, with the
  // output from which that backward starts: DistributedDataParallel is armed here.
  std::function<void(const Tensor& output)> before_last_backward = {};
};

class Pipeline {
 public:
  // Collective over `stages`, whose rank is the stage.
  explicit Pipeline(std::shared_ptr<comm::ProcessGroup> stages);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Collective. Runs every action of this stage. The ranks must pass equal schedules, which the
  // checker accepts. Returns the sum of the losses on every stage. Throws UsageError if the
  // schedule has another number of stages, or if a result differs from step.activation.
  double run(const comm::PipelineSchedule& schedule, const PipelineStep& step);
  // Collective. Runs step.forward for microbatch 0 without recording a graph, stage after stage.
  // Returns the last stage's result, of the given size, on every stage.
  [[nodiscard]] Tensor evaluate(const PipelineStep& step, const Shape& result);

  // Largest number of microbatches whose activations this stage has stored, in the last run.
  [[nodiscard]] int most_stored() const { return most_stored_; }

 private:
  // One direction between this stage and a neighbour; empty at the ends of the pipeline.
  struct NeighbourLink {
    std::shared_ptr<comm::ProcessGroup> pair;
    Tensor sending;  // kept until work is done
    comm::WorkPtr work;
  };
  struct NeighbourLinks {
    NeighbourLink in, out;
  };
  void send(NeighbourLink& link, const Tensor& t);
  [[nodiscard]] static Tensor receive(const NeighbourLink& link, const Shape& sizes,
                                      TensorOptions options);
  void finish_sends();

  std::shared_ptr<comm::ProcessGroup> stages_;
  NeighbourLinks forward_, backward_;
  int most_stored_ = 0;
};

}  // namespace ringsmith
