// planted: three ranks train a network of four layers, and one thing is slow. Which one it is
// depends on the number: 0 (nothing), 1, 2 or 3.
//
//   ringrun --standalone --no-prefix --nproc-per-node 3 -- lesson15_planted 1 FOLDER
//
// writes trace.json and report.html into FOLDER. Do not read on before you have a diagnosis.
//
// A layer takes its time asleep, as if a device computed it, so that the ranks share few cores
// without slowing each other down. Messages, waits and stamps are real.
#include <chrono>
#include <optional>
#include <thread>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/job.hpp"
#include "labs/apps/train/accumulate.hpp"
#include "labs/apps/train/data.hpp"
#include "labs/apps/train/options.hpp"
#include "labs/apps/train/run.hpp"
#include "lessons/arguments.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/optim/optimizer.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;

namespace {

struct Plan {
  double read_ms = 0.5;        // of a batch, on every rank
  int slow_rank = -1;          // computes forward six times as slowly
  double bucket_cap_mb = 0.5;  // a layer has 0.6 MiB, so each is a bucket
};
constexpr Plan kPlans[] = {{}, {.read_ms = 9}, {.slow_rank = 1}, {.bucket_cap_mb = 1000}};

constexpr std::int64_t kWidth = 400, kBatch = 4, kSteps = 12;
constexpr double kForwardMs = 1, kBackwardMs = 3;  // of a layer

void pause(double ms) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
}

// Returns y. Its forward and its backward take their time.
Tensor taking(const Tensor& y, double forward_ms) {
  pause(forward_ms);
  return record("TakingBackward", {y}, y.detach(), {},
                [](const Saved& /*saved*/, const Tensor& grad) {
                  pause(kBackwardMs);
                  return std::vector<Tensor>{grad};
                });
}

class FourLayers : public Module {
 public:
  explicit FourLayers(double forward_ms) : forward_ms_(forward_ms) {
    for (int i = 0; i < 4; ++i) {
      layers_.push_back(std::make_unique<Linear>(kWidth, kWidth));
      register_module("layers." + std::to_string(i), *layers_.back());
    }
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const auto& layer : layers_) y = taking((*layer)(y), forward_ms_);
    return y;
  }

 private:
  double forward_ms_;
  std::vector<std::unique_ptr<Linear>> layers_;
};

class Reads : public Dataset {
 public:
  explicit Reads(double ms) : ms_(ms) {}
  [[nodiscard]] std::int64_t size() const override { return 3 * kBatch * kSteps; }
  [[nodiscard]] Batch get(std::span<const std::int64_t> indices) const override {
    pause(ms_);
    const Tensor rows = ones({std::ssize(indices), kWidth});
    return {rows, rows};
  }

 private:
  double ms_;
};

int train(const Plan& plan, const std::string& folder) {
  TrainOptions o;
  o.batch = kBatch;
  o.run_dir = folder;
  o.report = true;
  o.progress = "off";
  o.bucket_cap_mb = plan.bucket_cap_mb;
  o.overlap = "on";  // automatic: off, if the ranks share their cores; these sleep
  const auto group = start(o);
  TrainingRun run(*group, o);
  LossExchange losses(*group);
  run.open_folder();
  const Reads data(plan.read_ms);
  Batches batches(data, *group, kBatch, o.seed, 0);
  FourLayers model(group->rank() == plan.slow_rank ? 6 * kForwardMs : kForwardMs);
  DdpOptions buckets = ddp_options(o);
  buckets.first_bucket_mb = plan.bucket_cap_mb;
  DistributedDataParallel ddp(model, group, buckets);
  SGD optimizer(model.parameters(), {.lr = 0.001});
  GradScaler scaler = scaler_of(o);
  run.resume({.model = model,
              .optimizer = optimizer,
              .scaler = scaler,
              .states = states_of(batches, ddp),
              .ranks = group->size(),
              .batch_size = kBatch,
              .steps = kSteps,
              .next_loss = {},
              .data = "ones",
              .fixed = {}});
  run.start({kSteps, "samples", static_cast<double>(kBatch * group->size()), model.device()});
  while (run.begin_step()) {
    optimizer.zero_grad();
    accumulate_gradients(run, losses, ddp, batches, scaler, o, model.device(),
                         [](const Tensor& y, const Tensor& t) { return mse_loss(y, t); });
    run.losses_done(losses.finish(run.step()), losses.wish());
    optimizer.step();
    run.step_done(true, optimizer.lr(), 1);
  }
  run.finish({"trained", {}, model.state_dict(), {}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("lesson15_planted", [&] {
    require(argc == 3, "give a number from 0 to 3, and a folder");
    const lessons::Arguments given(argc, argv, "lesson15_planted NUMBER FOLDER", 2);
    const long number = given.whole(1, 0, 0, std::ssize(kPlans) - 1);
    return train(kPlans[number], argv[2]);
  });
}
