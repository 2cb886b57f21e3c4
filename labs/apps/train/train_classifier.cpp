#include "labs/apps/train/train_classifier.hpp"

#include <fmt/format.h>
#include <optional>
#include <span>
#include <vector>

#include "labs/apps/train/accumulate.hpp"
#include "labs/apps/train/data.hpp"
#include "labs/apps/train/per_step.hpp"
#include "labs/apps/train/run.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/agreement.hpp"

namespace ringsmith::apps {

namespace {

constexpr EvaluationPlan kEvaluation{.batch = 256};

std::string headline(double accuracy, const Dataset& test) {
  return fmt::format("test accuracy {:.2f} % of {} images", 100 * accuracy, test.size());
}

Metadata metadata_of(const TrainOptions& o, const Classifier& c) {
  return {{"program", c.program}, {"model", c.network}, {"seed", std::to_string(o.seed)}};
}

ImageSets load(const Classifier& c) {
  ImageSets sets = c.load();
  const Images &seen = sets.train.images(), &unseen = sets.test.images();
  require(seen.height == unseen.height && seen.width == unseen.width,
          "training and test images differ in size");
  return sets;
}

std::unique_ptr<Module> make_model(const TrainOptions& o, const Classifier& c,
                                   const ImageSets& sets) {
  manual_seed(o.seed);
  auto model = c.make_model(sets.train.images());
  model->to(device_of_rank(o.device));
  return model;
}

// The bytes alone do not distinguish images of 6 x 8 pixels from images of 8 x 6. Square images are
// identified by the bytes, so checkpoints of earlier versions can be continued.
std::string identity(const ImageDataset& set) {
  const Images& images = set.images();
  const std::string bytes = identity_of(
      {std::as_bytes(std::span(images.pixels)), std::as_bytes(std::span(images.labels))});
  if (images.height == images.width) return bytes;
  return fmt::format("{} in images of {} x {} pixels", bytes, images.height, images.width);
}

comm::Settings inputs_of(const Classifier& c, const ImageSets& sets) {
  comm::Settings out{{kTrainingData, identity(sets.train)}, {kTestData, identity(sets.test)}};
  if (!c.weights.empty()) {
    const auto bytes = read_file(c.weights, "weights");
    out.emplace_back("the weights", identity_of({std::as_bytes(std::span(bytes))}));
  }
  return out;
}

comm::Settings fixed_of(const Classifier& c) {
  comm::Settings out{{"the program", c.program}};
  out.insert(out.end(), c.fixed.begin(), c.fixed.end());
  return out;
}

SGDOptions sgd_options(const TrainOptions& o, const Classifier& c) {
  return {.lr = o.lr, .momentum = c.momentum, .weight_decay = c.weight_decay};
}

LrSchedule schedule_of(const TrainOptions& o, std::int64_t steps) {
  return cosine_lr(o.lr, steps / 20, steps);
}

Tensor loss_of(const Tensor& outputs, const Tensor& labels) {
  return cross_entropy(outputs, labels);
}

// The same loop as in train_gpt.cpp, but without clipping the gradients.
template <class MeanGradients>
void train(auto& run, SGD& optimizer, GradScaler& scaler, const LrSchedule& schedule,
           const MeanGradients& mean_gradients) {
  while (run.begin_step()) {
    optimizer.zero_grad();
    if (!mean_gradients()) continue;
    optimizer.set_lr(schedule(run.updates()));
    const bool made = scaler.step(optimizer);
    scaler.update();
    run.step_done(made, optimizer.lr(), scaler.get_scale());
  }
}

int train_classifier_per_step(const TrainOptions& common, const Classifier& c) {
  require(c.workers == 0, "--per-step cannot be combined with --workers: give --workers 0");
  const ImageSets sets = load(c);
  const auto model = make_model(common, c, sets);
  SGD optimizer(model->parameters(), sgd_options(common, c));
  GradScaler scaler = scaler_of(common);
  PerStepRun run(common, {.program = c.program,
                          .metadata = metadata_of(common, c),
                          .data = sets.train,
                          .inputs = inputs_of(c, sets),
                          .fixed = fixed_of(c),
                          .model = *model,
                          .optimizer = optimizer,
                          .scaler = scaler,
                          .default_steps = c.default_steps,
                          .loss = loss_of});
  train(run, optimizer, scaler, schedule_of(common, run.steps()),
        [&] { return run.try_gradients(); });
  return run.finish([&](comm::ProcessGroup& group) {
    return headline(evaluate(group, *model, sets.test, kEvaluation).accuracy, sets.test);
  });
}

}  // namespace

int train_classifier(const TrainOptions& common, const Classifier& c) {
  if (common.per_step) return train_classifier_per_step(common, c);
  const auto group = start(common);
  TrainingRun run(*group, common);
  LossExchange losses(*group);
  std::int64_t batch_size = 0;
  std::optional<ImageSets> sets;
  std::optional<Batches> batches;
  std::unique_ptr<Module> model;
  comm::Settings inputs;
  together(*group, [&] {
    check_ddp(common);
    batch_size = batch_per_rank(common, group->size());
    sets.emplace(load(c));
    batches.emplace(sets->train, *group, batch_size, common.seed, c.workers);
    model = make_model(common, c, *sets);
    inputs = inputs_of(c, *sets);
  });
  require_agreement(*group, inputs);
  run.open_folder();
  const Device device = model->device();

  DistributedDataParallel ddp(*model, group, ddp_options(common));
  register_comm_hook(common, ddp, group);
  SGD optimizer(model->parameters(), sgd_options(common, c));
  GradScaler scaler = scaler_of(common);

  const std::int64_t steps_per_epoch =
      (batches->per_epoch() + common.accumulate - 1) / common.accumulate;
  const std::int64_t steps = steps_of(common, steps_per_epoch, c.default_steps);
  const LrSchedule schedule = schedule_of(common, steps);
  run.say(
      fmt::format("{}: {} ({} to train, {} to test)\n"
                  "{} with {} parameters, {} rank(s) x batch {}, {} steps\nfiles go to {}",
                  c.program, sets->origin, sets->train.size(), sets->test.size(), c.network,
                  parameter_count(*model), group->size(), batch_size, steps, run.folder()));

  const Trained trained{
      .model = *model,
      .optimizer = optimizer,
      .scaler = scaler,
      .states = states_of(*batches, ddp),
      .ranks = group->size(),
      .batch_size = batch_size,
      .steps = steps,
      .next_loss = [&] { return next_loss(ddp, *batches, common, device, loss_of); },
      .data = inputs.front().second,
      .fixed = fixed_of(c)};
  run.evaluate_with([&] {
    ddp.synchronise_buffers();  // the ranks share the test images and must use the same statistics
    return evaluate(*group, *model, sets->test, kEvaluation);
  });
  run.resume(trained);
  batches->prepare();
  run.start({steps, "samples", static_cast<double>(batch_size * group->size()), device});
  train(run, optimizer, scaler, schedule, [&] {
    accumulate_gradients(run, losses, ddp, *batches, scaler, common, device, loss_of);
    const double mean = losses.finish(run.step());
    run.losses_done(mean, losses.wish());
    return true;
  });

  if (common.ddp_logging) run.say(to_text(ddp.logging_data()));
  const double score = run.evaluate().accuracy;
  run.finish({headline(score, sets->test),
              {{"test_accuracy", score}},
              model->state_dict(),
              metadata_of(common, c)});
  return 0;
}

}  // namespace ringsmith::apps
