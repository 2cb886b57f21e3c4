// wrong: five mistakes around a model, a loss and an optimizer.
#include <cmath>
#include <cstdio>
#include <vector>

#include "kernels/mode.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/tensor/tensor.hpp"

using namespace ringsmith;

class Forgetful : public Module {  // one of its two layers is not registered
 public:
  Forgetful() : up(2, 3), down(3, 1) { register_module("up", up); }
  Tensor forward(const Tensor& x) override { return down(relu(up(x))); }
  Linear up, down;
};

void softmax_without_shift(const std::vector<float>& z) {
  float sum = 0;
  for (const float v : z) sum += std::exp(v);
  std::printf("logits %g and %g: by hand the loss is %g", z[0], z[1],
              -std::log(std::exp(z[0]) / sum));
  const Tensor logits = from_vector(z, {1, 2});
  std::printf(", cross_entropy says %g\n",
              cross_entropy(logits, from_vector(std::vector<std::int64_t>{0})).item<float>());
}

int main() {
  kernels::set_mode(kernels::Mode::oracle);
  manual_seed(0);
  const Forgetful model;
  std::printf("Forgetful has %lld parameters, of 13\n",
              static_cast<long long>(parameter_count(model)));

  softmax_without_shift({100, 0});
  softmax_without_shift({0, 100});
  softmax_without_shift({0, 200});

  try {
    (void)cross_entropy(zeros({2, 3}), from_vector(std::vector<std::int64_t>{0, 3}));
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
  }

  const Tensor none = scalar(1).requires_grad_(), zero = scalar(1).requires_grad_();
  AdamW optimizer({none, zero}, AdamOptions{.lr = 0.1, .weight_decay = 0.5});
  for (int step = 0; step < 10; ++step) {
    zero.set_grad(scalar(0));
    optimizer.step();
  }
  std::printf("after 10 steps with decay: without gradient %.3f, with gradient 0 %.3f\n",
              none.item<float>(), zero.item<float>());

  const Tensor kept = scalar(1).requires_grad_(), summed = scalar(1).requires_grad_();
  SGD right({kept}, SGDOptions{.lr = 0.5}), wrong({summed}, SGDOptions{.lr = 0.5});
  std::printf("loss p^2 / 2, p after each step, with zero_grad and without:");
  for (int step = 0; step < 5; ++step) {
    right.zero_grad();
    (kept * kept * 0.5).backward();
    (summed * summed * 0.5).backward();
    right.step();
    wrong.step();
    std::printf("  %.3f %.3f", kept.item<float>(), summed.item<float>());
  }
  std::printf("\n");
}
