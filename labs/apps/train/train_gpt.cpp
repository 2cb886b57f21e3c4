// train_gpt: the main program. Trains a GPT on this repository's own lessons and sources or any
// other text, as bytes or tokens, data-parallel over all ranks.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "labs/apps/common/command_line.hpp"
#include "labs/apps/train/accumulate.hpp"
#include "labs/apps/train/data.hpp"
#include "labs/apps/train/mesh.hpp"
#include "labs/apps/train/per_step.hpp"
#include "labs/apps/train/run.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/agreement.hpp"
#include "runtime/parallel/beyond/fsdp.hpp"
#include "runtime/parallel/ddp.hpp"

namespace ringsmith::apps {
namespace {

constexpr std::int64_t kDefaultSteps = 800;
constexpr std::int64_t kEvaluationBatch = 16;  // windows

struct GptOptions {
  TrainOptions common;
  MeshOptions mesh;
  std::string tokens, vocabulary;  // files
  GPTOptions model;
  double weight_decay = 0.1;
  double clip = 1.0;
  double warmup = 0.05;  // share of the steps
  double floor = 0.1;    // of the learning rate, as a share of its peak
  std::int64_t validation_windows = 512;
  GenerateOptions sample{.tokens = 400, .context = 128, .temperature = 0.8, .top_k = 0};
  std::string prompt = "// ";
  int workers = 0;
  std::string shard = "none";
};

int train_gpt_sharded(GptOptions& o);

bool read_options(GptOptions& o, int argc, char** argv) {
  o.model.gpt2_init = true;
  o.common.batch = 8;
  o.common.lr = 3e-3;
  CommandLine app("Trains a GPT on text, data-parallel over all ranks.", "train_gpt");
  app.group("Data");
  auto* text = app.add_option(
      "--data", o.common.data,
      "text file; its last tenth is held out [the lessons and sources of ringsmith, the last tenth "
      "of each file held out]");
  app.add_option("--tokens", o.tokens,
                 "text as tokens instead: a .bin file of llm.c, or a folder of them; files with "
                 "'val' in their names are held out, otherwise the last tenth of each")
      ->default_text("")
      ->excludes(text);
  app.add_option(
         "--vocab", o.vocabulary,
         "byte-pair vocabulary, a file in tiktoken's format (r50k_base.tiktoken is GPT-2's): "
         "text is read and written in its tokens, not in bytes")
      ->default_text("");
  app.add_option("--workers", o.workers,
                 "threads that prepare batches ahead; 0 is enough for data in memory")
      ->check(whole(0, 64));
  app.add_option("--validation-windows", o.validation_windows,
                 "maximum number of windows of held-out text in an evaluation")
      ->check(whole(1));
  app.group("Model");
  app.add_option("--layers", o.model.layers, "transformer blocks")->check(whole(1, 1000));
  app.add_option("--dim", o.model.dim, "width; a multiple of --heads")->check(whole(1));
  app.add_option("--heads", o.model.heads, "attention heads")->check(whole(1, 1000));
  app.add_option("--context", o.model.context, "bytes or tokens that the model sees at a time")
      ->check(whole(1));
  app.add_option("--dropout", o.model.dropout, "probability of dropping an activation")
      ->check(real(0, 0.99));
  app.add_flag("--tie-head", o.model.tied,
               "use the token table as the head's weight, too: fewer parameters");
  app.add_option("--pad-vocabulary", o.model.vocabulary_multiple,
                 "round the head's rows up to a multiple of this, the last ones unused: 128 suits "
                 "tensor cores")
      ->check(whole(1, 65536));
  app.add_flag("--activation-checkpointing", o.model.activation_checkpointing,
               "keep only the input of each block, and recompute the block in backward: less "
               "memory, a third more computation, the same numbers");
  app.group("Training");
  app.add_option("--weight-decay", o.weight_decay, "weight decay of AdamW")->check(real(0, 1e6));
  app.add_option("--clip", o.clip, "largest 2-norm of the gradient")->check(above_zero(1e30));
  app.add_option("--warmup", o.warmup, "share of the steps in which the learning rate rises")
      ->check(real(0, 1));
  app.add_option("--lr-floor", o.floor, "learning rate of the last step, as a share of --lr")
      ->check(real(0, 1));
  add_mesh_options(app, o.mesh);
  app.add_option("--shard", o.shard,
                 "parameters: each rank keeps a part of the parameters, of the gradients and of "
                 "AdamW's state, and gathers a block's parameters while it uses them (FSDP, "
                 "ZeRO-3); gradients: parameters stay gathered from forward to backward (ZeRO-2)")
      ->check(one_of({"none", "gradients", "parameters"}));
  app.group("Output");
  app.add_option("--sample", o.sample.tokens, "bytes or tokens to generate at the end")
      ->check(whole(0));
  app.add_option("--prompt", o.prompt, "text that the sample continues");
  app.add_option("--temperature", o.sample.temperature,
                 "sampling temperature; 0: always the likeliest")
      ->check(real(0, 1e6));
  add_train_options(app, o.common, std::to_string(kDefaultSteps));
  return app.parse(argc, argv);
}

// Loads the text, and derives the model's remaining options from it.
Corpus load(GptOptions& o) {
  Corpus corpus = load_corpus({o.common.data, o.tokens, o.vocabulary}, o.model.context);
  o.model.vocabulary = corpus.alphabet;
  if (!o.tokens.empty() && !corpus.vocabulary) o.sample.tokens = 0;  // cannot be decoded
  require(!o.mesh.given() || o.shard == "none",
          "--shard cannot be combined with --tensor-parallel or --pipeline: leave one of them out");
  require(!o.prompt.empty() || o.sample.tokens == 0, "--prompt is empty; give at least one byte");
  return corpus;
}

comm::Settings inputs_of(const Corpus& corpus) {
  const auto identity = [](const TokenWindows& windows) {
    return identity_of({std::as_bytes(std::span(windows.text()))});
  };
  return {{kTrainingData, identity(*corpus.train)}, {kTestData, identity(*corpus.held_out)}};
}

EvaluationPlan evaluation_of(const GptOptions& o) {
  return {.batch = kEvaluationBatch, .most = o.validation_windows};
}

std::string headline(double nats, const Corpus& corpus) {
  return fmt::format("validation loss {:.4f} nats/{} ({:.3f} bits) on held-out text", nats,
                     corpus.unit, nats / std::log(2.0));
}

AdamOptions adam_options(const GptOptions& o) {
  return {.lr = o.common.lr, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = o.weight_decay};
}

LrSchedule schedule_of(const GptOptions& o, std::int64_t steps) {
  const auto warmup = static_cast<std::int64_t>(o.warmup * static_cast<double>(steps));
  return cosine_lr(o.common.lr, warmup, steps, o.floor * o.common.lr);
}

std::string sample_of(const GptOptions& o, const Corpus& corpus, Module& model) {
  if (o.sample.tokens == 0) return {};
  return "\n---- a sample ----\n" +
         sample_text(model, corpus.vocabulary, o.prompt, o.sample, o.common.seed) +
         "\n------------------";
}

Metadata metadata_of(const GptOptions& o) {
  return {{"program", "train_gpt"},
          {"layers", std::to_string(o.model.layers)},
          {"heads", std::to_string(o.model.heads)},
          {"seed", std::to_string(o.common.seed)}};
}

comm::Settings fixed_of(const GptOptions& o) {
  return {{"the program", "train_gpt"},
          {"--context", std::to_string(o.model.context)},
          {"--heads", std::to_string(o.model.heads)},
          {"--tie-head", o.model.tied ? "given" : "not given"},
          {"--pad-vocabulary", std::to_string(o.model.vocabulary_multiple)}};
}

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

int train_gpt_per_step(GptOptions& o) {
  const TrainOptions& common = o.common;
  require(o.workers == 0, "--per-step cannot be combined with --workers: leave it out");
  apply_mesh(o.mesh, o.common);
  const Corpus corpus = load(o);
  manual_seed(common.seed);
  GPT model(o.model);
  model.to(device_of_rank(common.device));
  AdamW optimizer(model.parameters(), adam_options(o));
  GradScaler scaler = scaler_of(common);
  PerStepRun run(common, {.program = "train_gpt",
                          .metadata = metadata_of(o),
                          .data = *corpus.train,
                          .inputs = inputs_of(corpus),
                          .fixed = fixed_of(o),
                          .model = model,
                          .optimizer = optimizer,
                          .scaler = scaler,
                          .default_steps = kDefaultSteps,
                          .loss = next_byte_loss});
  train(
      run, optimizer, scaler, schedule_of(o, run.steps()), [&] { return run.try_gradients(); },
      [&] { clip_grad_norm_(optimizer.params(), o.clip); });
  return run.finish(
      [&](comm::ProcessGroup& group) {
        return headline(evaluate(group, model, *corpus.held_out, evaluation_of(o)).loss, corpus);
      },
      [&] { return sample_of(o, corpus, model); });
}

// Like train_gpt() below, for a model that is split among several ranks.
int train_gpt_on_mesh(GptOptions& o) {
  const TrainOptions& common = o.common;
  const auto group = start(common);
  Mesh mesh;
  std::int64_t batch_size = 0, parameters = 0;
  Corpus corpus;
  std::optional<Batches> batches;
  std::unique_ptr<GPT> whole;
  Device device;
  together(*group, [&] {
    apply_mesh(o.mesh, o.common);
    check_ddp(common);
    mesh = make_mesh(*group, o.mesh.shape);
    batch_size = batch_per_rank(common, mesh.replicas());
    corpus = load(o);
    batches.emplace(*corpus.train, *mesh.data, batch_size, common.seed, o.workers);
    manual_seed(common.seed);
    whole = std::make_unique<GPT>(o.model);
    parameters = parameter_count(*whole);
    device = device_of_rank(common.device);
  });
  const comm::Settings inputs = inputs_of(corpus);
  require_agreement(*group, inputs);
  std::optional<MeshModel> split;
  together(*group, [&] { split.emplace(std::move(whole), mesh, o.mesh); });
  MeshModel& model = *split;
  model.to(device);
  TrainingRun run(*group, common);
  LossExchange losses(*group);
  run.open_folder();

  DistributedDataParallel ddp(model.stage(), mesh.data, ddp_options(common));
  register_comm_hook(common, ddp, mesh.data);
  // Dropout must be the same on the parts of a stage, and differ between stages and replicas.
  manual_seed(common.seed + 1 +
              static_cast<std::uint64_t>(mesh.replica() + mesh.replicas() * mesh.stage()));
  AdamW optimizer(model.stage().parameters(), adam_options(o));
  GradScaler scaler = scaler_of(common);
  const std::int64_t tokens_per_batch = batch_size * mesh.replicas() * o.model.context;
  const std::int64_t tokens_per_step = tokens_per_batch * common.accumulate;
  const std::int64_t steps = steps_of(
      common, std::max<std::int64_t>(1, corpus.train_bytes / tokens_per_step), kDefaultSteps);
  const LrSchedule schedule = schedule_of(o, steps);
  run.say(fmt::format(
      "train_gpt: {}\n{} parameters on {} stage(s) x {} part(s), {} replica(s) x {} "
      "microbatch(es) x batch {} x {} {}s, {} steps\nfiles go to {}",
      corpus.origin, parameters, mesh.stages(), mesh.parts(), mesh.replicas(), common.accumulate,
      batch_size, o.model.context, corpus.unit, steps, run.folder()));

  const auto evaluate_all = [&] {
    Evaluation out;
    together(*group,
             [&] { out = evaluate(*mesh.data, model, *corpus.held_out, evaluation_of(o)); });
    return out;
  };
  run.evaluate_with(evaluate_all);
  run.resume({.model = model.stage(),
              .optimizer = optimizer,
              .scaler = scaler,
              .states = {},
              .ranks = group->size(),
              .batch_size = batch_size,
              .steps = steps,
              .next_loss = {},
              .data = inputs.front().second,
              .fixed = fixed_of(o),
              .replicas = mesh.data.get()});
  run.start({steps, "tokens", static_cast<double>(tokens_per_batch), device});
  const auto mean_gradients = [&] {
    losses.begin(model.accumulate(run, ddp, *batches, common, device), run.wish());
    const double mean = losses.finish(run.step());
    run.losses_done(mean, losses.wish());
    return true;
  };
  train(run, optimizer, scaler, schedule, mean_gradients,
        [&] { model.stage().clip_grad_norm(o.clip); });

  if (common.ddp_logging) run.say(to_text(ddp.logging_data()));
  const double nats = run.evaluate().loss;
  Outcome outcome;
  outcome.headline = headline(nats, corpus);
  if (mesh.replica() == 0) {  // one replica's ranks work together
    outcome.headline += sample_of(o, corpus, model);
    outcome.model = model.stage().whole_state();
  }
  outcome.figures = {{std::string("validation_nats_per_") + corpus.unit, nats}};
  outcome.metadata = metadata_of(o);
  run.finish(outcome);
  return 0;
}

int train_gpt(int argc, char** argv) {
  GptOptions o;
  if (!read_options(o, argc, argv)) return 0;
  o.sample.context = o.model.context;
  const TrainOptions& common = o.common;
  if (o.mesh.given()) return train_gpt_on_mesh(o);
  if (o.shard != "none") return train_gpt_sharded(o);
  if (common.per_step) return train_gpt_per_step(o);
  const auto group = start(common);
  TrainingRun run(*group, common);
  LossExchange losses(*group);
  Corpus corpus;
  std::int64_t batch_size = 0;
  std::optional<Batches> batches;
  std::optional<GPT> model;
  Device device;
  comm::Settings inputs;
  together(*group, [&] {
    check_ddp(common);
    apply_mesh(o.mesh, o.common);
    batch_size = batch_per_rank(common, group->size());
    corpus = load(o);
    batches.emplace(*corpus.train, *group, batch_size, common.seed, o.workers);
    manual_seed(common.seed);
    model.emplace(o.model);
    device = device_of_rank(common.device);
    model->to(device);
    inputs = inputs_of(corpus);
  });
  require_agreement(*group, inputs);
  run.open_folder();

  DistributedDataParallel ddp(*model, group, ddp_options(common));
  register_comm_hook(common, ddp, group);
  // Dropout must differ between ranks, but the parameters above must not.
  manual_seed(common.seed + 1 + static_cast<std::uint64_t>(group->rank()));
  AdamW optimizer(model->parameters(), adam_options(o));

  GradScaler scaler = scaler_of(common);

  const std::int64_t tokens_per_batch = batch_size * group->size() * o.model.context;
  const std::int64_t tokens_per_step = tokens_per_batch * common.accumulate;
  const std::int64_t steps = steps_of(
      common, std::max<std::int64_t>(1, corpus.train_bytes / tokens_per_step), kDefaultSteps);
  const LrSchedule schedule = schedule_of(o, steps);
  const bool bytes = corpus.unit == std::string_view("byte");
  const double scale = bytes ? 1e3 : 1;
  const char* amount = bytes ? "KB" : "tokens";
  run.say(fmt::format(
      "train_gpt: {} ({:.0f} {} to train, {:.0f} {} held out)\n{} parameters, {} rank(s) "
      "x batch {} x {} {}s, {} steps\nfiles go to {}",
      corpus.origin, static_cast<double>(corpus.train_bytes) / scale, amount,
      static_cast<double>(corpus.held_out_bytes) / scale, amount, parameter_count(*model),
      group->size(), batch_size, o.model.context, corpus.unit, steps, run.folder()));

  run.evaluate_with([&] { return evaluate(*group, *model, *corpus.held_out, evaluation_of(o)); });
  run.resume({.model = *model,
              .optimizer = optimizer,
              .scaler = scaler,
              .states = states_of(*batches, ddp),
              .ranks = group->size(),
              .batch_size = batch_size,
              .steps = steps,
              .next_loss = [&] { return next_loss(ddp, *batches, common, device, next_byte_loss); },
              .data = inputs.front().second,
              .fixed = fixed_of(o)});
  run.start({steps, "tokens", static_cast<double>(tokens_per_batch), device});
  const auto mean_gradients = [&] {
    // DDP's all-reduces and the exchange of the losses overlap with backward. A loss that is not
    // finite stops all ranks before the update.
    accumulate_gradients(run, losses, ddp, *batches, scaler, common, device, next_byte_loss);
    const double mean = losses.finish(run.step());
    run.losses_done(mean, losses.wish());
    return true;
  };
  train(run, optimizer, scaler, schedule, mean_gradients,
        [&] { clip_grad_norm_(optimizer.params(), o.clip); });

  if (common.ddp_logging) run.say(to_text(ddp.logging_data()));
  const double nats = run.evaluate().loss;
  Outcome outcome;
  outcome.headline = headline(nats, corpus);
  if (group->rank() == 0) outcome.headline += sample_of(o, corpus, *model);
  outcome.figures = {{std::string("validation_nats_per_") + corpus.unit, nats}};
  outcome.model = model->state_dict();
  outcome.metadata = metadata_of(o);
  run.finish(outcome);
  return 0;
}

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

  // Ranks may have different numbers of held-out batches, so each has all parameters meanwhile.
  // The last evaluation is followed by checks of the whole model.
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

}  // namespace
}  // namespace ringsmith::apps

int main(int argc, char** argv) {
  return ringsmith::apps::run_program("train_gpt",
                                      [&] { return ringsmith::apps::train_gpt(argc, argv); });
}
