// elastic_train FOLDER EPOCHS: a training run whose model shows which samples it was trained with.
//
// Sample i is the number i, the model is one weight w, and the loss is the sum of w times the
// samples. With SGD at a rate of 1, w ends at -(sum of the samples used). That is exactly -EPOCHS *
// 240 * 239 / 2 if each of the 240 was used once per epoch, with any number of ranks.
//
// FOLDER/checkpoint contains the model and the step, saved every third step. Every rank records the
// samples it uses, and rank 0 the step at which a round begins:
//
//     FOLDER/taken.ROUND.RANK    STEP EPOCH SAMPLE SAMPLE ...
//     FOLDER/begun.ROUND         STEP
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/ringsmith.hpp"

using namespace ringsmith;

namespace {

constexpr std::int64_t kSamples = 240, kGlobalBatch = 12, kPerEpoch = kSamples / kGlobalBatch;
constexpr std::int64_t kSaveEvery = 3;  // steps; does not divide an epoch
constexpr std::chrono::milliseconds kStep{50};

class Sum : public Module {
 public:
  Sum() { register_parameter("w", w, zeros({1})); }
  Tensor forward(const Tensor& x) override { return sum(mul(x, w)); }
  Tensor w;
};

void train(const std::string& folder, std::int64_t epochs) {
  comm::GroupOptions options;
  options.timeout = std::chrono::seconds(10);
  const auto group = comm::init_process_group(options);
  const std::int64_t world = group->size();
  require(kGlobalBatch % world == 0, "elastic_train: 1, 2, 3, 4, 6 or 12 ranks");
  const char* const round = std::getenv("RINGSMITH_ROUND");
  const std::string suffix = std::string(".") + (round != nullptr ? round : "0");
  const std::string checkpoint = folder + "/checkpoint";

  Sum model;
  std::int64_t begun = 0;
  if (group->rank() == 0 && std::filesystem::exists(checkpoint)) {
    const Checkpoint last = load_safetensors(checkpoint);
    model.load_state_dict(last.tensors);
    begun = std::stoll(last.metadata.at("step"));
  }
  group->broadcast(std::span(&begun, 1), 0);
  if (group->rank() == 0) std::ofstream(folder + "/begun" + suffix) << begun << "\n";
  DistributedDataParallel ddp(model, group);  // all ranks have rank 0's model now
  SGD optimizer(model.parameters(), {.lr = 1});
  DistributedSampler sampler(kSamples, {.replicas = group->size(), .rank = group->rank()});

  std::ofstream taken(folder + "/taken" + suffix + "." + std::to_string(group->rank()));
  for (std::int64_t step = begun; step < epochs * kPerEpoch; ++step) {
    const std::int64_t epoch = step / kPerEpoch, batch = kGlobalBatch / world;
    sampler.set_epoch(epoch, step % kPerEpoch * batch);
    std::vector<std::int64_t> mine = sampler.indices();
    mine.resize(static_cast<std::size_t>(batch));
    taken << step << " " << epoch;
    for (const std::int64_t sample : mine) taken << " " << sample;
    taken << std::endl;
    optimizer.zero_grad();
    // DDP divides by the number of ranks, but here gradients are summed.
    const std::vector<float> values(mine.begin(), mine.end());
    mul(ddp.forward(from_vector(values, {batch})), static_cast<float>(world)).backward();
    optimizer.step();
    std::this_thread::sleep_for(kStep);
    if (group->rank() == 0 && (step + 1) % kSaveEvery == 0)
      save_safetensors(checkpoint, model.state_dict(), {{"step", std::to_string(step + 1)}});
  }
  if (group->rank() == 0)
    std::printf("%lld epochs on %lld ranks at the end: w = %.0f\n", static_cast<long long>(epochs),
                static_cast<long long>(world), static_cast<double>(model.w.item<float>()));
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("elastic_train", [&] {
    require(argc == 3, "usage: elastic_train FOLDER EPOCHS");
    train(argv[1], std::atoll(argv[2]));
    return 0;
  });
}
