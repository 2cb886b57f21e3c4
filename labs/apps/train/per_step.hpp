// A run with --per-step (runtime/parallel/beyond/per_step.hpp), in which ranks may be lost or join.
// Unlike the loop of a TrainingRun (run.hpp), its training loop may repeat a step:
//
//   PerStepRun run(options, task);
//   while (run.begin_step()) {
//     optimizer.zero_grad();
//     if (!run.try_gradients()) continue;   // a rank was lost
//     ...                                   // update the parameters
//     run.step_done(made, optimizer.lr(), scaler.get_scale());
//   }
//   return run.finish(...);
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "labs/apps/train/options.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/nn/module.hpp"
#include "runtime/optim/optimizer.hpp"

namespace ringsmith::apps {

struct PerStepTask {
  std::string program;
  Metadata metadata;  // of model.safetensors
  const Dataset& data;
  comm::Settings inputs;  // digests of the data, which the ranks compare; the training data first
  comm::Settings fixed;   // for Trained
  Module& model;          // with the same values on all ranks
  Optimizer& optimizer;
  GradScaler& scaler;
  std::int64_t default_steps = 0;
  std::function<Tensor(const Tensor& outputs, const Tensor& targets)> loss;  // a mean
};

// With --run-dir, each rank writes steps-rank-R.jsonl there, with a line for each failed attempt
// and for each step that counted: its ranks, this rank's sample indices, the mean loss, and the
// SHA-256 of the parameters if a rank joined. With --save-every the first rank also writes
// checkpoints (run_checkpoints.hpp).
class PerStepRun {
 public:
  // Blocks until the first quorum. The options and the task's objects must outlive this object.
  // Throws UsageError for options that cannot be combined with --per-step.
  PerStepRun(const TrainOptions& o, const PerStepTask& task);
  ~PerStepRun();
  PerStepRun(const PerStepRun&) = delete;
  PerStepRun& operator=(const PerStepRun&) = delete;

  [[nodiscard]] std::int64_t steps() const;
  // Returns false after the last step, or when the ranks were asked to stop.
  [[nodiscard]] bool begin_step();
  // Runs forward and backward, averages the ranks' gradients, and exchanges their losses. Returns
  // false if the step does not count; call begin_step() next.
  [[nodiscard]] bool try_gradients();
  [[nodiscard]] std::int64_t updates() const;
  // Takes the same arguments as TrainingRun::step_done(). Throws if the loss is not finite.
  void step_done(bool made, double lr, double scale);

  // Collective. Throws if the ranks' parameters differ. The first rank writes model.safetensors,
  // and prints the headline that `evaluate` (collective) returns, and the sample. Returns the
  // program's exit code. If a signal has stopped the run, the first rank writes a checkpoint
  // instead, and all ranks throw QuietStop with ExitCode::preempted.
  int finish(
      const std::function<std::string(comm::ProcessGroup&)>& evaluate,
      const std::function<std::string()>& sample = [] { return std::string(); });

 private:
  class Announcer;
  class TurnsToSave;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ringsmith::apps
