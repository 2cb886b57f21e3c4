#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <vector>

#include "labs/apps/train/accumulate.hpp"
#include "labs/apps/train/gpt_program.hpp"
#include "runtime/parallel/agreement.hpp"
#include "runtime/parallel/beyond/fsdp.hpp"

namespace ringsmith::apps {

namespace {

void check_shard(const GptOptions& o) {
  const auto refuse = [&](bool given, const std::string& option, const std::string& reason) {
    require(!given, "--shard " + o.shard + " cannot be combined with " + option + ": " + reason +
                        "; leave out one of the two");
  };
  const TrainOptions& c = o.common;
  refuse(c.per_step, "--per-step", "a lost rank would take its shard with it");
  refuse(c.ddp != "buckets" || c.ddp_logging || c.comm_hook != "none" ||
             c.bucket_cap_mb != MachineOptions().bucket_cap_mb || c.overlap == "alternate",
         "options of DistributedDataParallel", "it has units, not buckets");
  refuse(c.save_every != 0 || !c.resume.empty(), "--save-every or --resume",
         "checkpoints of shards are not written; the final model is");
  refuse(c.check_drift != 0, "--check-drift", "the ranks have different parameters");
  refuse(c.stage_through_host, "--stage-through-host", "it gathers on the model's device");
}

}  // namespace

// Like train_gpt(), with FSDP in place of DDP: each block is a unit.
int train_gpt_sharded(GptOptions& o) {
  const TrainOptions& common = o.common;
  const auto group = start(common);
  TrainingRun run(*group, common);
  LossExchange losses(*group);
  Corpus corpus;
  std::int64_t batch_size = 0;
  std::optional<Batches> batches;
  std::optional<GPT> model;
  Device device;
  together(*group, [&] {
    check_shard(o);
    batch_size = batch_per_rank(common, group->size());
    corpus = load(o);
    batches.emplace(*corpus.train, *group, batch_size, common.seed, o.workers);
    manual_seed(common.seed);
    model.emplace(o.model);
    device = device_of_rank(common.device);
    model->to(device);
  });
  const comm::Settings inputs = inputs_of(corpus);
  require_agreement(*group, inputs);
  run.open_folder();

  std::vector<Module*> units;
  for (const auto& block : model->blocks) units.push_back(block.get());
  FullyShardedDataParallel fsdp(
      *model, units, group,
      {.reshard_after_forward = o.shard == "parameters", .overlap = parse_overlap(common.overlap)});
  manual_seed(common.seed + 1 + static_cast<std::uint64_t>(group->rank()));
  AdamW optimizer(fsdp.parameters(), adam_options(o));
  GradScaler scaler({.enabled = common.amp == "f16", .any_rank = any_rank(group)});
  const std::int64_t tokens_per_batch = batch_size * group->size() * o.model.context;
  const std::int64_t tokens_per_step = tokens_per_batch * common.accumulate;
  const std::int64_t steps = steps_of(
      common, std::max<std::int64_t>(1, corpus.train_bytes / tokens_per_step), kDefaultSteps);
  run.say(fmt::format(
      "train_gpt: {}\n{} parameters, of which each of {} rank(s) keeps {:.1f} MiB, x batch {} x "
      "{} {}s, {} steps\nfiles go to {}",
      corpus.origin, parameter_count(*model), group->size(),
      static_cast<double>(fsdp.parameter_bytes().value) / (1 << 20), batch_size, o.model.context,
      corpus.unit, steps, run.folder()));

  // Ranks may evaluate different numbers of batches, and a gather in forward would be collective.
  // So each rank holds all parameters during an evaluation. After the last evaluation it keeps
  // them, because the whole model is then checked.
  std::optional<FullyShardedDataParallel::Whole> at_end;
  run.evaluate_with([&] {
    const auto whole = fsdp.whole();
    if (run.step() == steps) at_end.emplace(fsdp);
    const Autocast autocast = autocast_of(common);  // the parameters have its dtype
    return evaluate(*group, *model, *corpus.held_out, evaluation_of(o));
  });
  run.resume({.model = *model,
              .optimizer = optimizer,
              .scaler = scaler,
              .states = {},
              .ranks = group->size(),
              .batch_size = batch_size,
              .steps = steps,
              .next_loss = {},
              .data = inputs.front().second,
              .fixed = fixed_of(o)});
  batches->prepare();
  run.start({steps, "tokens", static_cast<double>(tokens_per_batch), device});
  const auto mean_gradients = [&] {
    accumulate_gradients(run, losses, fsdp, *batches, scaler, common, device, next_byte_loss);
    const double mean = losses.finish(run.step());
    run.losses_done(mean, losses.wish());
    return true;
  };
  train(run, optimizer, scaler, schedule_of(o, steps), mean_gradients,
        [&] { fsdp.clip_grad_norm(o.clip); });

  const double nats = run.evaluate().loss;
  Outcome outcome;
  outcome.headline = headline(nats, corpus);
  if (group->rank() == 0) {
    const Autocast autocast = autocast_of(common);
    outcome.headline += sample_of(o, corpus, *model);
  }
  outcome.figures = {{std::string("validation_nats_per_") + corpus.unit, nats}};
  outcome.model = fsdp.state_dict();
  outcome.metadata = metadata_of(o);
  run.finish(outcome);
  return 0;
}

}  // namespace ringsmith::apps
