// train_mlp: a multilayer perceptron that reads digits, on any number of ranks.
//
// Images and labels come from IDX files (MNIST and its likes), or are drawn when none are given.
#include <fmt/format.h>
#include <optional>
#include <span>
#include <vector>

#include "labs/apps/common/command_line.hpp"
#include "labs/apps/train/accumulate.hpp"
#include "labs/apps/train/data.hpp"
#include "labs/apps/train/per_step.hpp"
#include "labs/apps/train/run.hpp"
#include "runtime/data/images.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/ddp.hpp"

namespace ringsmith::apps {
namespace {

constexpr int kClasses = 10;
constexpr std::int64_t kDefaultSteps = 600;
constexpr EvaluationPlan kEvaluation{.batch = 256};

struct MlpOptions {
  TrainOptions common;
  std::string images, labels, test_images, test_labels;
  std::int64_t draw = 20'000;
  std::int64_t hidden = 256;
  double momentum = 0.9;
  int workers = 0;
};

struct Digits {
  GreyImages train, test;
  std::string origin;
};

// The last tenth becomes the test set.
Digits split(GreyImages all) {
  const auto n = static_cast<std::int64_t>(all.labels.size());
  const std::int64_t test = n / 10, train = n - test, size = all.height * all.width;
  require(test > 0, fmt::format("{} images are too few to hold out a tenth for testing; give "
                                "--test-images and --test-labels",
                                n));
  Digits out;
  out.train = {all.height,
               all.width,
               {all.pixels.begin(), all.pixels.begin() + train * size},
               {all.labels.begin(), all.labels.begin() + train}};
  out.test = {all.height,
              all.width,
              {all.pixels.begin() + train * size, all.pixels.end()},
              {all.labels.begin() + train, all.labels.end()}};
  return out;
}

Digits load(const MlpOptions& o) {
  require(o.images.empty() == o.labels.empty(), "--images and --labels go together");
  require(o.test_images.empty() == o.test_labels.empty(),
          "--test-images and --test-labels go together");
  require(o.test_images.empty() || !o.images.empty(),
          "--test-images without --images: give the training images too");
  if (!o.common.data.empty()) {
    require(o.images.empty(), "give either --data or --images, not both");
    return {load_mnist(o.common.data, true), load_mnist(o.common.data, false), o.common.data};
  }
  if (!o.images.empty() && !o.test_images.empty())
    return {load_idx_images(o.images, o.labels, kClasses),
            load_idx_images(o.test_images, o.test_labels, kClasses), o.images};
  if (!o.images.empty()) {
    Digits out = split(load_idx_images(o.images, o.labels, kClasses));
    out.origin = o.images + ", last tenth for testing";
    return out;
  }
  // Fixed seeds: another --seed trains differently on the same digits.
  return {draw_digits(o.draw, 1), draw_digits(o.draw / 10 + 1, 2), "drawn digits"};
}

void require_same_size(const Digits& digits) {
  require(digits.train.height == digits.test.height && digits.train.width == digits.test.width,
          "training and test images differ in size");
}

std::string headline(double score, const Dataset& test) {
  return fmt::format("test accuracy {:.2f} % of {} images", 100 * score, test.size());
}

Metadata metadata_of(const TrainOptions& o) {
  return {{"program", "train_mlp"}, {"seed", std::to_string(o.seed)}};
}

int train_mlp_per_step(const MlpOptions& o) {
  const TrainOptions& common = o.common;
  require(o.workers == 0, "--per-step does not go with --workers: leave it out");
  Digits digits = load(o);
  require_same_size(digits);
  const std::int64_t pixels = digits.train.height * digits.train.width;
  const ImageDataset train_set(std::move(digits.train), kClasses);
  const ImageDataset test_set(std::move(digits.test), kClasses);
  manual_seed(common.seed);
  MLP model({pixels, o.hidden, o.hidden, kClasses});
  model.to(device_of_rank(common.device));
  SGD optimizer(model.parameters(), {.lr = common.lr, .momentum = o.momentum});
  return train_per_step(
      common,
      {.program = "train_mlp",
       .metadata = metadata_of(common),
       .data = train_set,
       .model = model,
       .optimizer = optimizer,
       .default_steps = kDefaultSteps,
       .schedule = [&](std::int64_t steps) { return cosine_lr(common.lr, steps / 20, steps); },
       .loss =
           [](DistributedDataParallel& ddp, const Batch& batch) {
             return cross_entropy(ddp.forward(batch.inputs), batch.targets);
           },
       .evaluate =
           [&](comm::ProcessGroup& group) {
             return headline(evaluate(group, model, test_set, kEvaluation).accuracy, test_set);
           }});
}

int train_mlp(int argc, char** argv) {
  MlpOptions o;
  o.common.batch = 64;
  o.common.lr = 0.05;
  CLI::App app("Trains a multilayer perceptron to read digits, data-parallel over all ranks.",
               "train_mlp");
  app.option_defaults()->group("Data");
  app.add_option("--data", o.common.data,
                 "folder with MNIST's four files: train-images-idx3-ubyte, t10k-labels-..., ...");
  app.add_option("--images", o.images, "IDX file of training images (u8, n x h x w)");
  app.add_option("--labels", o.labels, "IDX file of their labels (u8, n)");
  app.add_option("--test-images", o.test_images, "IDX file of test images [a tenth of --images]");
  app.add_option("--test-labels", o.test_labels, "IDX file of their labels");
  app.option_defaults()->always_capture_default()->take_last();
  app.add_option("--draw", o.draw, "digits to draw when no files are given")->check(whole(1));
  app.add_option("--workers", o.workers,
                 "threads that prepare batches ahead; 0 is enough for data in memory")
      ->check(whole(0, 64));
  app.option_defaults()->group("Training");
  app.add_option("--hidden", o.hidden, "width of the two hidden layers")->check(whole(1));
  app.add_option("--momentum", o.momentum, "of SGD")->check(real(0, 1));
  add_train_options(app, o.common, std::to_string(kDefaultSteps));
  if (!parse_command_line(app, argc, argv)) return 0;
  const TrainOptions& common = o.common;
  if (common.per_step) return train_mlp_per_step(o);
  const auto group = start(common);
  TrainingRun run(*group, common);
  std::int64_t batch_size = 0;
  std::optional<ImageDataset> train_set, test_set;
  std::optional<Batches> batches;
  std::string origin;
  together(*group, [&] {
    batch_size = batch_per_rank(common, group->size());
    Digits digits = load(o);
    require_same_size(digits);
    origin = digits.origin;
    train_set.emplace(std::move(digits.train), kClasses);
    test_set.emplace(std::move(digits.test), kClasses);
    batches.emplace(*train_set, *group, batch_size, common.seed, o.workers);
  });
  run.open_folder();

  manual_seed(common.seed);
  const std::int64_t pixels = train_set->images().height * train_set->images().width;
  MLP model({pixels, o.hidden, o.hidden, kClasses});
  const Device device = device_of_rank(common.device);
  model.to(device);
  DistributedDataParallel ddp(model, group, ddp_options(common));
  register_comm_hook(common, ddp, group);
  SGD optimizer(model.parameters(), {.lr = common.lr, .momentum = o.momentum});
  GradScaler scaler = scaler_of(common);

  const std::int64_t steps_per_epoch =
      (batches->per_epoch() + common.accumulate - 1) / common.accumulate;
  const std::int64_t steps = steps_of(common, steps_per_epoch, kDefaultSteps);
  const LrSchedule schedule = cosine_lr(common.lr, steps / 20, steps);
  run.say(
      fmt::format("train_mlp: {} ({} to train, {} to test), {} parameters, {} rank(s) x batch "
                  "{}, {} steps; files go to {}",
                  origin, train_set->size(), test_set->size(), parameter_count(model),
                  group->size(), batch_size, steps, run.folder()));

  run.evaluate_with([&] { return evaluate(*group, model, *test_set, kEvaluation); });
  const GreyImages& images = train_set->images();
  const std::int64_t done =
      run.resume({.model = model,
                  .optimizer = optimizer,
                  .scaler = scaler,
                  .ddp = ddp,
                  .batches = *batches,
                  .batch_size = batch_size,
                  .steps = steps,
                  .data =
                      [&] {
                        return identity_of({std::as_bytes(std::span(images.pixels)),
                                            std::as_bytes(std::span(images.labels))});
                      },
                  .fixed = {{"the program", "train_mlp"}},
                  .free = {{"--momentum", fmt::format("{}", o.momentum)}}});
  run.start({steps, "samples", static_cast<double>(batch_size * group->size()), device});
  for (std::int64_t step = done; step < steps; ++step) {
    run.begin_step();
    optimizer.zero_grad();
    accumulate_gradients(run, ddp, *batches, scaler, common, device,
                         [](const Tensor& x, const Tensor& y) { return cross_entropy(x, y); });
    optimizer.set_lr(schedule(step));
    scaler.step(optimizer);
    scaler.update();
    run.step_done(optimizer.lr(), scaler.get_scale());
    check_drift_if_due(common, *group, model, step + 1);
  }

  if (common.ddp_logging) run.say(to_text(ddp.logging_data()));
  const double score = run.evaluate().accuracy;
  run.finish({headline(score, *test_set),
              {{"test_accuracy", score}},
              model.state_dict(),
              metadata_of(common)});
  return 0;
}

}  // namespace
}  // namespace ringsmith::apps

int main(int argc, char** argv) {
  return ringsmith::apps::run_program("train_mlp",
                                      [&] { return ringsmith::apps::train_mlp(argc, argv); });
}
