#include "labs/apps/train/train_classifier.hpp"

#include <fmt/format.h>
#include <optional>
#include <span>
#include <vector>

#include "labs/apps/train/accumulate.hpp"
#include "labs/apps/train/data.hpp"
#include "labs/apps/train/run.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/optim/optimizer.hpp"

namespace ringsmith::apps {

namespace {

// The share of these images whose label has the largest of the model's outputs. The ranks share the
// work, each image is counted once.
double accuracy(comm::ProcessGroup& group, Module& model, const Dataset& test) {
  const NoGradGuard no_grad;
  const EvalGuard evaluating(model);
  const Device device = model.device();
  constexpr std::int64_t kBatch = 256;
  double right = 0;
  std::vector<std::int64_t> indices;
  const auto count_right = [&] {
    if (indices.empty()) return;
    const Batch batch = test.get(indices).to(device);
    const auto best = max(model.forward(batch.inputs), 1).second.to_vector<std::int64_t>();
    const auto target = batch.targets.to_vector<std::int64_t>();
    for (std::size_t i = 0; i < best.size(); ++i) right += best[i] == target[i] ? 1 : 0;
    indices.clear();
  };
  for (std::int64_t i = group.rank(); i < test.size(); i += group.size()) {
    indices.push_back(i);
    if (static_cast<std::int64_t>(indices.size()) == kBatch) count_right();
  }
  count_right();
  return sum_over_ranks(group, {right})[0] / static_cast<double>(test.size());
}

}  // namespace

void train_classifier(const TrainOptions& common, const Classifier& c) {
  const auto group = start(common);
  TrainingRun run(*group, common);
  std::int64_t batch_size = 0;
  std::optional<ImageSets> sets;
  std::optional<Batches> batches;
  std::unique_ptr<Module> model;
  Device device;
  together(*group, [&] {
    batch_size = batch_per_rank(common, group->size());
    sets.emplace(c.load());
    const Images &seen = sets->train.images(), &unseen = sets->test.images();
    require(seen.height == unseen.height && seen.width == unseen.width,
            "training and test images differ in size");
    batches.emplace(sets->train, *group, batch_size, common.seed, c.workers);
    manual_seed(common.seed);
    model = c.make_model(seen);
    device = device_of_rank(common.device);
    model->to(device);
  });
  run.open_folder();

  DistributedDataParallel ddp(*model, group, ddp_options(common));
  register_comm_hook(common, ddp, group);
  SGD optimizer(model->parameters(),
                {.lr = common.lr, .momentum = c.momentum, .weight_decay = c.weight_decay});
  GradScaler scaler = scaler_of(common);

  const std::int64_t steps_per_epoch =
      (batches->per_epoch() + common.accumulate - 1) / common.accumulate;
  const std::int64_t steps = steps_of(common, steps_per_epoch, c.default_steps);
  const LrSchedule schedule = cosine_lr(common.lr, steps / 20, steps);
  run.say(
      fmt::format("{}: {} ({} to train, {} to test), {} with {} parameters, {} rank(s) x batch {}, "
                  "{} steps; files go to {}",
                  c.program, sets->origin, sets->train.size(), sets->test.size(), c.network,
                  parameter_count(*model), group->size(), batch_size, steps, run.folder()));

  Trained trained{.model = *model,
                  .optimizer = optimizer,
                  .scaler = scaler,
                  .ddp = ddp,
                  .batches = *batches,
                  .batch_size = batch_size,
                  .steps = steps,
                  .data =
                      [&] {
                        const Images& images = sets->train.images();
                        return identity_of({std::as_bytes(std::span(images.pixels)),
                                            std::as_bytes(std::span(images.labels))});
                      },
                  .fixed = {{"the program", c.program}},
                  .free = {{"--momentum", fmt::format("{}", c.momentum)}}};
  trained.fixed.insert(trained.fixed.end(), c.fixed.begin(), c.fixed.end());
  trained.free.insert(trained.free.end(), c.free.begin(), c.free.end());
  const std::int64_t done = run.resume(trained);
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
    check_drift_if_due(common, *group, *model, step + 1);
  }

  if (common.ddp_logging) run.say(to_text(ddp.logging_data()));
  ddp.synchronise_buffers();  // the ranks share the test images, and must judge them alike
  const double score = accuracy(*group, *model, sets->test);
  run.finish(
      {fmt::format("test accuracy {:.2f} % of {} images", 100 * score, sets->test.size()),
       {{"test_accuracy", score}},
       model->state_dict(),
       {{"program", c.program}, {"model", c.network}, {"seed", std::to_string(common.seed)}}});
}

}  // namespace ringsmith::apps
