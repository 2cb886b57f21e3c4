// rates: the learning rate when N ranks with 8 rows each take one step instead of N steps of one
// rank. Each line is a training run of 40 epochs, by one process with the batch of all N ranks.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "kernels/mode.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/tensor/tensor.hpp"

using namespace ringsmith;

constexpr std::int64_t kPoints = 512, kRows = 8;
constexpr int kEpochs = 40;

int main() {
  kernels::set_mode(kernels::Mode::oracle);
  Generator generator(7);
  const Tensor x = rand({kPoints, 2}, generator) * 2.0 + -1.0;
  std::vector<std::int64_t> inside;
  for (std::size_t i = 0; i < kPoints; ++i) {
    const float u = x.data<float>()[2 * i], v = x.data<float>()[2 * i + 1];
    inside.push_back(u * u + v * v < 0.64F ? 1 : 0);
  }

  const auto train = [&](const char* name, int ranks, double lr, double momentum, int warmup) {
    manual_seed(1);
    MLP model({2, 16, 2});
    SGD optimizer(model.parameters(), {.lr = lr, .momentum = momentum});
    const LrSchedule schedule = warmup_lr(lr, warmup);
    const std::int64_t batch = kRows * ranks;
    std::int64_t step = 0;
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      Generator shuffle(static_cast<std::uint64_t>(epoch));
      const std::vector<std::int64_t> order = randperm(kPoints, shuffle);
      for (std::int64_t at = 0; at < kPoints; at += batch) {
        std::vector<float> rows;
        std::vector<std::int64_t> targets;
        for (auto i = at; i < at + batch; ++i) {
          const auto point = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
          rows.insert(rows.end(), {x.data<float>()[2 * point], x.data<float>()[2 * point + 1]});
          targets.push_back(inside[point]);
        }
        optimizer.set_lr(schedule(step++));
        optimizer.zero_grad();
        cross_entropy(model(from_vector(rows, {batch, 2})), from_vector(targets)).backward();
        optimizer.step();
      }
    }
    const NoGradGuard no_grad;
    std::printf("%-34s %5d %6.1f %6ld   %.3f\n", name, ranks, lr, static_cast<long>(step),
                static_cast<double>(cross_entropy(model(x), from_vector(inside)).item<float>()));
  };
  std::printf("%-34s %5s %6s %6s   %s\n", "", "ranks", "lr", "steps", "loss");
  train("SGD", 1, 0.1, 0, 0);
  train("SGD, the same rate", 4, 0.1, 0, 0);
  train("SGD, 4 times the rate", 4, 0.4, 0, 0);
  train("SGD, 32 times the rate", 32, 3.2, 0, 0);
  train("momentum 0.9", 1, 0.1, 0.9, 0);
  train("momentum 0.9, 32 times the rate", 32, 3.2, 0.9, 0);
  train("the same, 20 steps of warm-up", 32, 3.2, 0.9, 20);
}
