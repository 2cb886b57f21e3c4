// The loop of --per-step: ranks may be lost or join meanwhile (runtime/parallel/per_step.hpp).
#pragma once

#include <functional>
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
  std::int64_t default_steps = 0;
  std::function<LrSchedule(std::int64_t steps)> schedule;
  std::function<Tensor(const Tensor& outputs, const Tensor& targets)> loss;  // a mean
  std::function<void()> before_update = [] {};
  std::function<std::string(comm::ProcessGroup&)> evaluate;            // collective: a headline
  std::function<std::string()> sample = [] { return std::string(); };  // printed after the headline
};

// With --run-dir, each rank writes steps-rank-R.jsonl there: a line for each step that counted (its
// ranks, this rank's sample indices, the mean loss; after a step in which a rank joined, the
// SHA-256 of the parameters) and for each attempt that failed. At the end all ranks compare the
// SHA-256 of their parameters, and the first rank writes model.safetensors and prints the results.
// With --save-every it also writes the checkpoints of run_checkpoints.hpp. Returns the program's
// exit code. Throws QuietStop with ExitCode::preempted when all have saved because of a signal, and
// UsageError for options that cannot be combined with --per-step.
int train_per_step(const TrainOptions& o, const PerStepTask& task);

}  // namespace ringsmith::apps
