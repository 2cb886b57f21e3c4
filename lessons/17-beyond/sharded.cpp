// sharded: AdamW on 1 to 4 ranks, plain and divided. Prints the KiB that each rank holds, and
// whether the parameters have the same bits after 20 steps.
#include <algorithm>
#include <memory>

#include "kernels/mode.hpp"
#include "lessons/09-ddp/ranks.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/beyond/zero.hpp"

using namespace ringsmith;

namespace {

// 73,271 parameters in all, which is no multiple of 2, 3 or 4.
const std::vector<std::int64_t> kWidths{30, 250, 251, 10};

enum class Kind { plain, scattered, all_reduced };

struct Trained {
  std::vector<float> values;
  std::size_t parameters = 0, gradients = 0, state = 0;  // bytes of the fullest rank
};

std::size_t bytes_of_state(const StateDict& state) {
  std::int64_t count = 0;
  for (const auto& [name, tensor] : state)
    if (name.rfind("state.", 0) == 0) count += tensor.numel() * 4;
  return static_cast<std::size_t>(count);
}

Trained train(int world, Kind kind) {
  std::vector<std::unique_ptr<MLP>> models;
  for (int r = 0; r < world; ++r) {
    manual_seed(1);
    models.push_back(std::make_unique<MLP>(kWidths));
  }
  std::vector<Trained> found(static_cast<std::size_t>(world));
  on_ranks(
      world,
      [&](const Group& group) {
        Trained& mine = found[static_cast<std::size_t>(group->rank())];
        MLP& model = *models[static_cast<std::size_t>(group->rank())];
        DistributedDataParallel ddp(model, group);
        const auto make = [](std::vector<Tensor> p) {
          return std::make_unique<AdamW>(std::move(p), AdamOptions{.lr = 0.01});
        };
        std::unique_ptr<Optimizer> plain;
        std::unique_ptr<ZeroRedundancyOptimizer> divided;
        if (kind == Kind::plain) plain = make(model.parameters());
        if (kind != Kind::plain)
          divided = std::make_unique<ZeroRedundancyOptimizer>(
              ddp, make,
              kind == Kind::scattered ? ZeroGradients::scattered : ZeroGradients::all_reduced);
        for (int step = 0; step < 20; ++step) {
          Generator random(static_cast<std::uint64_t>(100 * step + group->rank()));
          const Tensor x = randn({8, 30}, random), y = randn({8, 10}, random);
          plain ? plain->zero_grad() : divided->zero_grad();
          mse_loss(ddp.forward(x), y).backward();
          plain ? plain->step() : divided->step();
        }
        mine.state = plain ? bytes_of_state(plain->state_dict()) : divided->state_bytes().value;
        for (const Tensor& p : model.parameters()) {
          mine.parameters += size_in_bytes(p).value;
          mine.gradients += size_in_bytes(p.grad()).value;
          for (const float value : p.to_vector<float>()) mine.values.push_back(value);
        }
        return std::string();
      },
      false);
  Trained all = found[0];
  for (const Trained& one : found) {
    all.state = std::max(all.state, one.state);
    if (one.values != all.values) std::printf("the ranks differ\n");
  }
  return all;
}

}  // namespace

int main() {
  kernels::set_mode(kernels::Mode::oracle);
  std::printf(
      "KiB on a rank    parameters  gradients  state, plain  divided   all-reduced  scattered\n");
  for (int world = 1; world <= 4; ++world) {
    const Trained plain = train(world, Kind::plain), scattered = train(world, Kind::scattered),
                  all_reduced = train(world, Kind::all_reduced);
    const auto kib = [](std::size_t bytes) { return static_cast<double>(bytes) / 1024; };
    const auto bits = [&](const Trained& t) {
      return t.values == plain.values ? "same bits" : "rounded otherwise";
    };
    std::printf("%d rank%s  %18.1f %10.1f %13.1f %8.1f     %s    %s\n", world,
                world == 1 ? " " : "s", kib(plain.parameters), kib(plain.gradients),
                kib(plain.state), kib(scattered.state), bits(all_reduced), bits(scattered));
  }
}
