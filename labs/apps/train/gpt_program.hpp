// Shared by the variants of train_gpt: the options, the text and the loop. The plain variant, with
// DistributedDataParallel, is in train_gpt.cpp.
//
//   train_gpt.cpp     every rank has the whole model; with --per-step, training survives lost ranks
//   gpt_captured.cpp  --graph: a single rank launches each step as a CUDA graph
//   gpt_mesh.cpp      --tensor-parallel, --pipeline: a rank has a part of each block or some blocks
//   gpt_sharded.cpp   --shard: a rank keeps a part of each parameter and gathers the rest for use
#pragma once

#include <cstdint>
#include <string>

#include "labs/apps/train/data.hpp"
#include "labs/apps/train/mesh.hpp"
#include "labs/apps/train/run.hpp"
#include "runtime/amp/grad_scaler.hpp"
#include "runtime/nn/gpt.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/ddp.hpp"

namespace ringsmith::apps {

constexpr std::int64_t kDefaultSteps = 800;

struct GptOptions {
  TrainOptions common;
  MeshOptions mesh;
  std::string tokens, vocabulary;  // files
  GPTOptions model;
  double weight_decay = 0.1;
  double clip = 1.0;
  double warmup = 0.05;  // share of the steps
  double floor = 0.1;    // lowest learning rate, as a share of its peak
  std::int64_t validation_windows = 512;
  GenerateOptions sample{.tokens = 400, .context = 128, .temperature = 0.8, .top_k = 0};
  std::string prompt = "// ";
  int workers = 0;
  std::string shard = "none";
  bool graph = false;  // replay the step as a CUDA graph
};

// Returns false if the command line only asked for help.
bool read_options(GptOptions& o, int argc, char** argv);
// Loads the text, and derives the model's remaining options from it.
Corpus load(GptOptions& o);

// Settings on which the ranks must agree, and the metadata of files.
comm::Settings inputs_of(const Corpus& corpus);
comm::Settings fixed_of(const GptOptions& o);
Metadata metadata_of(const GptOptions& o);

EvaluationPlan evaluation_of(const GptOptions& o);
AdamOptions adam_options(const GptOptions& o);
LrSchedule schedule_of(const GptOptions& o, std::int64_t steps);
std::string headline(double nats, const Corpus& corpus);
// Returns text that the model generates, or "" if none is wanted.
std::string sample_of(const GptOptions& o, const Corpus& corpus, Module& model);

// The run is a TrainingRun or, with --per-step, a PerStepRun. mean_gradients runs forward and
// backward, leaves the ranks' mean gradients in .grad and exchanges their losses. If a rank was
// lost, it returns false, and the step is repeated.
template <class MeanGradients, class Clip>
void train(auto& run, AdamW& optimizer, GradScaler& scaler, const LrSchedule& schedule,
           const MeanGradients& mean_gradients, const Clip& clip) {
  while (run.begin_step()) {
    optimizer.zero_grad();
    if (!mean_gradients()) continue;
    scaler.unscale_(optimizer);
    clip();
    optimizer.set_lr(schedule(run.updates()));
    const bool made = scaler.step(optimizer);
    scaler.update();
    run.step_done(made, optimizer.lr(), scaler.get_scale());
  }
}

// --graph (gpt_captured.cpp): throws UsageError if the step cannot be captured.
void check_graph(const GptOptions& o, int ranks);
// Trains as train() does, with the same results.
void train_captured(const GptOptions& o, TrainingRun& run, LossExchange& losses,
                    DistributedDataParallel& ddp, Batches& batches, AdamW& optimizer,
                    const LrSchedule& schedule);

int train_gpt_on_mesh(GptOptions& o);
int train_gpt_sharded(GptOptions& o);

}  // namespace ringsmith::apps
