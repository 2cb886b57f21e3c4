// The loop of --per-step: ranks may be lost and come while it runs (runtime/parallel/per_step.hpp).
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
  comm::Settings inputs;  // digests of the data, which the ranks compare; the first: to train on
  comm::Settings fixed;   // for Trained
  Module& model;          // the same values on all ranks
  Optimizer& optimizer;
  std::int64_t default_steps = 0;
  std::function<LrSchedule(std::int64_t steps)> schedule;
  std::function<Tensor(const Tensor& outputs, const Tensor& targets)> loss;  // a mean
  std::function<void()> before_update = [] {};
  std::function<std::string(comm::ProcessGroup&)> evaluate;            // collective: a headline
  std::function<std::string()> sample = [] { return std::string(); };  // to follow it
};

// With --run-dir, each rank writes steps-rank-R.jsonl there: a line for each step that counted (who
// was there, its samples' indices, the mean loss; after a step that somebody joined, the SHA-256 of
// the parameters) and for each try that failed. At the end all compare the SHA-256 of their
// parameters; the first rank writes model.safetensors and speaks. With --save-every it writes
// checkpoints meanwhile, those of run_checkpoints.hpp; QuietStop with ExitCode::preempted when all
// have saved because of a signal. UsageError for options that do not go with --per-step. The
// program's exit code.
int train_per_step(const TrainOptions& o, const PerStepTask& task);

}  // namespace ringsmith::apps
