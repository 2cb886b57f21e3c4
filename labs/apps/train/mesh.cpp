#include "labs/apps/train/mesh.hpp"

#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/autograd/functions.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::apps {

void add_mesh_options(CommandLine& app, MeshOptions& o) {
  app.group("Splitting the model");
  app.add_option("--tensor-parallel", o.shape.tensor,
                 "ranks among which each block's matrices are split; must divide --heads")
      ->check(whole(1, 64));
  app.add_flag("--sequence-parallel", o.split_sequence,
               "with --tensor-parallel: split norms and residual sums among the ranks, too, by "
               "tokens");
  app.add_option("--pipeline", o.shape.pipeline,
                 "stages into which the blocks are divided, one rank (or --tensor-parallel) each")
      ->check(whole(1, 64));
  app.add_option("--microbatches", o.microbatches,
                 "batches in a step of each replica, which fill the pipeline")
      ->check(whole(1, 100'000));
  app.add_option("--pipeline-schedule", o.schedule,
                 "order of the passes: 1f1b stores the activations of at most --pipeline "
                 "microbatches, gpipe of all")
      ->check(one_of({"1f1b", "gpipe"}));
}

void apply_mesh(const MeshOptions& o, TrainOptions& common) {
  require(!o.split_sequence || o.shape.tensor > 1,
          "--sequence-parallel splits among the ranks of --tensor-parallel: give it, too");
  require(o.microbatches == 1 || o.given(),
          "--microbatches is for --pipeline and --tensor-parallel; without them, use --accumulate");
  if (!o.given()) return;
  const auto refuse = [](bool given, const std::string& option, const std::string& reason) {
    require(!given, "--tensor-parallel and --pipeline cannot be combined with " + option + ": " +
                        reason + "; leave out one of the two");
  };
  refuse(common.per_step, "--per-step", "each rank holds a part of the model that no other has");
  refuse(common.save_every > 0, "--save-every", "checkpoints hold one rank's model and optimizer");
  refuse(!common.resume.empty(), "--resume", "checkpoints hold one rank's model and optimizer");
  refuse(common.amp == "f16", "--amp f16", "the ranks would skip different steps");
  refuse(common.ddp == "plain", "--ddp plain", "the replicas exchange gradients in buckets");
  refuse(common.accumulate > 1, "--accumulate", "--microbatches takes its place");
  common.accumulate = o.microbatches;
  common.heeds_signals = false;  // there is no checkpoint with which to stop
}

MeshModel::MeshModel(std::unique_ptr<GPT> whole, const Mesh& mesh, const MeshOptions& options)
    : mesh_(mesh),
      options_(options),
      stage_(std::move(whole), mesh, options.split_sequence),
      pipeline_(mesh.pipeline) {
  register_module("stage", stage_);
}

Tensor MeshModel::forward(const Tensor& tokens) {
  const std::int64_t b = tokens.size(0), t = tokens.size(1);
  // The padding at the end does not change the logits of earlier tokens.
  const std::int64_t parts = options_.split_sequence ? mesh_.parts() : 1;
  const std::int64_t padded = (t + parts - 1) / parts * parts;
  const Tensor all =
      padded == t ? tokens : cat({tokens, zeros({b, padded - t}, tokens.options())}, 1);
  const auto run = [&](int /*microbatch*/, const Tensor& input) {
    return stage_(mesh_.is_first_stage() ? all : input);
  };
  const Tensor logits = pipeline_.evaluate({.forward = run,
                                            .activation = {b, padded, stage_.options().dim},
                                            .options = {DType::f32, tokens.device()}},
                                           {b, padded, stage_.options().vocabulary});
  return padded == t ? logits : slice(logits, 1, 0, t);
}

double MeshModel::accumulate(TrainingRun& run, DistributedDataParallel& ddp, Batches& batches,
                             const TrainOptions& common, Device device) {
  const std::int64_t group = batches.next_group(common.accumulate);
  std::vector<Batch> all;
  for (std::int64_t m = 0; m < group; ++m) {
    all.push_back(batches.next().to(device));
    run.fetched();
  }
  const Shape tokens = all.front().inputs.sizes();
  const auto forward = [&](int m, const Tensor& input) {
    if (m > 0) run.backward_done();  // includes the waits for neighbours
    const Batch& batch = all[static_cast<std::size_t>(m)];
    const Autocast autocast = autocast_of(common);
    Tensor out = stage_(mesh_.is_first_stage() ? batch.inputs : input);
    if (mesh_.is_last_stage()) {
      out = next_byte_loss(out, batch.targets);
      if (group > 1) out = mul(out, 1.0 / static_cast<double>(group));
    }
    run.forward_done();
    return out;
  };
  // Gradients stay local until the last backward, which DistributedDataParallel overlaps with its
  // all-reduces.
  using NoSync = DistributedDataParallel::NoSync;
  std::unique_ptr<NoSync> local(new NoSync(ddp.no_sync()));
  const double loss = pipeline_.run(
      comm::pipeline_schedule(options_.schedule, mesh_.stages(), static_cast<int>(group)),
      {.forward = forward,
       .activation = {tokens[0], tokens[1], stage_.options().dim},
       .options = {DType::f32, device},
       .before_last_backward = [&](const Tensor& output) {
         local.reset();
         (void)ddp.forward([&] { return output; });
       }});
  stage_.sum_sequence_gradients();
  run.backward_done();
  return loss;
}

}  // namespace ringsmith::apps
