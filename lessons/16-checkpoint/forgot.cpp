// forgot: a training run is saved after 30 of 60 steps, and continues in a new program from a
// checkpoint of which one part is not restored. It still learns, but it is a different run.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/mode.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/checkpoint/snapshot.hpp"
#include "runtime/data/sampler.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/optim/optimizer.hpp"

using namespace ringsmith;

namespace {

constexpr std::int64_t kSamples = 96, kBatch = 8, kStop = 30, kSteps = 60;
const std::string kFolder = "forgot-checkpoint";

class Training {
 public:
  Training() {
    manual_seed(1);
    model_.add<Linear>(4, 32);
    model_.add<ReLU>();
    model_.add<Dropout>(0.2);
    model_.add<Linear>(32, 1);
    optimizer_ = std::make_unique<AdamW>(model_.parameters(), AdamOptions{});
    Generator draw(7);
    for (std::int64_t i = 0; i < kSamples; ++i)
      inputs_.push_back(randn({4}, draw).to_vector<float>());
  }

  float train() {
    sampler_.load_state(place_);
    std::vector<std::int64_t> order = sampler_.indices();
    order.resize(kBatch);
    place_ = sampler_.state(kBatch);
    if (place_.used == kSamples) place_ = {place_.epoch + 1, 0};
    std::vector<float> x, y;
    for (const std::int64_t i : order) {
      const std::vector<float>& row = inputs_[static_cast<std::size_t>(i)];
      x.insert(x.end(), row.begin(), row.end());
      y.push_back(row[0] * row[1] + row[2]);
    }
    optimizer_->set_lr(0.02 * (1 - static_cast<double>(step_++) / kSteps));
    optimizer_->zero_grad();
    const Tensor loss = mse_loss(model_(from_vector(x, {kBatch, 4})), from_vector(y, {kBatch, 1}));
    loss.backward();
    optimizer_->step();
    return loss.item<float>();
  }

  void save() const {
    std::filesystem::remove_all(kFolder);
    write_snapshot(kFolder,
                   {step_,
                    {{"model", model_.state_dict()}, {"optimizer", optimizer_->state_dict()}},
                    {{"rng", get_rng_state()},
                     {"epoch", std::to_string(place_.epoch)},
                     {"used", std::to_string(place_.used)}}});
  }
  void resume(const std::string& without) {
    const Snapshot found = read_snapshot(kFolder);
    const auto with = [&](const char* part) { return without != part; };
    if (with("the parameters")) model_.load_state_dict(found.tensors.at("model"));
    if (with("the optimizer")) optimizer_->load_state_dict(found.tensors.at("optimizer"));
    if (with("the random numbers")) set_rng_state(found.values.at("rng"));
    if (with("the place in the epoch"))
      place_ = {std::stoll(found.values.at("epoch")), std::stoll(found.values.at("used"))};
    if (with("the step, for the schedule")) step_ = found.step;
  }

 private:
  Sequential model_;
  std::unique_ptr<AdamW> optimizer_;
  DistributedSampler sampler_{kSamples, {}};
  SamplerState place_;
  std::int64_t step_ = 0;
  std::vector<std::vector<float>> inputs_;
};

}  // namespace

int main() {
  kernels::set_mode(kernels::Mode::oracle);  // the same bits on every machine
  std::vector<float> whole;
  {
    Training training;
    for (std::int64_t i = 0; i < kSteps; ++i) {
      if (i == kStop) training.save();
      whole.push_back(training.train());
    }
  }
  std::printf("%-28s %22s %22s\n", "forgotten", "first loss that differs", "steps with other bits");
  for (const char* part : {"nothing", "the parameters", "the optimizer", "the random numbers",
                           "the place in the epoch", "the step, for the schedule"}) {
    Training training;
    training.resume(part);
    std::string first = "none";
    int different = 0;
    for (std::int64_t i = kStop; i < kSteps; ++i)
      if (training.train() != whole[static_cast<std::size_t>(i)] && ++different == 1)
        first = "step " + std::to_string(i);
    std::printf("%-28s %23s %16d of %ld\n", part, first.c_str(), different,
                static_cast<long>(kSteps - kStop));
  }
}
