// train_gpt: the main program. Trains a GPT on this repository's own lessons and sources or any
// other text, as bytes or tokens, data-parallel over all ranks.
#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include "labs/apps/train/accumulate.hpp"
#include "labs/apps/train/gpt_program.hpp"
#include "labs/apps/train/per_step.hpp"
#include "runtime/parallel/agreement.hpp"
#include "runtime/parallel/ddp.hpp"

namespace ringsmith::apps {
namespace {

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
    check_graph(o, group->size());
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
  batches->prepare();
  run.start({steps, "tokens", static_cast<double>(tokens_per_batch), device});
  const auto mean_gradients = [&] {
    // DDP's all-reduces and the exchange of the losses overlap with backward. A loss that is not
    // finite stops all ranks before the update.
    accumulate_gradients(run, losses, ddp, *batches, scaler, common, device, next_byte_loss);
    const double mean = losses.finish(run.step());
    run.losses_done(mean, losses.wish());
    return true;
  };
  if (o.graph)
    train_captured(o, run, losses, ddp, *batches, optimizer, schedule);
  else
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

}  // namespace
}  // namespace ringsmith::apps

int main(int argc, char** argv) {
  return ringsmith::apps::run_program("train_gpt",
                                      [&] { return ringsmith::apps::train_gpt(argc, argv); });
}
