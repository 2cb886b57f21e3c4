#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <utility>

#include "labs/apps/train/accumulate.hpp"
#include "labs/apps/train/gpt_program.hpp"
#include "runtime/parallel/agreement.hpp"
#include "runtime/parallel/ddp.hpp"

namespace ringsmith::apps {

// Like train_gpt(), for a model that is split among several ranks.
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
  batches->prepare();
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

}  // namespace ringsmith::apps
