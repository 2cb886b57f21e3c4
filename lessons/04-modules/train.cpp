// train: is a point inside the circle? A small MLP learns it in one process, with four optimizers.
#include <cstdio>
#include <memory>
#include <vector>

#include "kernels/mode.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/tensor/tensor.hpp"

using namespace ringsmith;

struct Points {
  Tensor x, inside;
};

// 128 points of the square from -1 to 1; the circle holds about half of them.
Points draw() {
  Generator generator(7);
  const Tensor x = rand({128, 2}, generator) * 2.0 + -1.0;
  std::vector<std::int64_t> inside;
  for (std::size_t i = 0; i < 128; ++i) {
    const float u = x.data<float>()[2 * i], v = x.data<float>()[2 * i + 1];
    inside.push_back(u * u + v * v < 0.64F ? 1 : 0);
  }
  return {x, from_vector(inside)};
}

template <class Make>
void train(const char* name, const Points& points, bool all, Make make) {
  manual_seed(1);  // the same initial weights for each optimizer
  MLP model({2, 16, 2});
  const std::unique_ptr<Optimizer> optimizer = make(model.parameters());
  std::printf("%-16s", name);
  for (int step = 1; step <= 200; ++step) {
    optimizer->zero_grad();
    const Tensor loss = cross_entropy(model(points.x), points.inside);
    loss.backward();
    optimizer->step();
    if (all || step == 1 || step == 10 || step == 50 || step == 200)
      std::printf("  %.3f", loss.item<float>());
  }
  std::printf("\n");
}

int main(int argc, char**) {
  const bool all = argc > 1;  // the losses of all steps, for the figure
  kernels::set_mode(kernels::Mode::oracle);
  const Points points = draw();
  MLP model({2, 16, 2});
  for (const auto& [name, parameter] : model.named_parameters())
    std::printf("%-9s %s\n", name.c_str(), to_string(parameter.sizes()).c_str());
  std::printf("loss at step          1     10     50    200\n");
  using Tensors = std::vector<Tensor>;
  train("SGD", points, all,
        [](const Tensors& p) { return std::make_unique<SGD>(p, SGDOptions{.lr = 0.1}); });
  train("SGD, momentum", points, all, [](const Tensors& p) {
    return std::make_unique<SGD>(p, SGDOptions{.lr = 0.1, .momentum = 0.9});
  });
  train("AdamW", points, all, [](const Tensors& p) {
    return std::make_unique<AdamW>(p, AdamOptions{.lr = 0.02, .weight_decay = 0.01});
  });
  train("AdamW, lr x 100", points, all, [](const Tensors& p) {
    return std::make_unique<AdamW>(p, AdamOptions{.lr = 2, .weight_decay = 0.01});
  });
}
