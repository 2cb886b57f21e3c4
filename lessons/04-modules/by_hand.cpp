// by_hand: a softmax on paper, the mean over three ranks, and the first steps of five optimizers.
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/mode.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/tensor/tensor.hpp"

using namespace ringsmith;

Tensor targets(const std::vector<std::int64_t>& classes) { return from_vector(classes); }

void softmax_on_paper() {
  const std::vector<float> z = {0, std::log(2.0F), std::log(3.0F)};
  const Tensor logits = from_vector(z, {1, 3}).requires_grad_();
  const Tensor p = softmax(logits.detach(), 1);
  const Tensor loss = cross_entropy(logits, targets({2}));
  loss.backward();
  std::printf("logits 0, ln 2, ln 3; the target is class 2\n");
  std::printf("  probabilities %.4f %.4f %.4f\n", p.data<float>()[0], p.data<float>()[1],
              p.data<float>()[2]);
  const Tensor grad = logits.grad();
  std::printf("  loss %.4f, gradient %.4f %.4f %.4f\n", loss.item<float>(), grad.data<float>()[0],
              grad.data<float>()[1], grad.data<float>()[2]);
}

// Divides the losses 1 .. 6 among three ranks; prints each rank's mean and the mean of these
// means.
void means(const std::vector<int>& rows) {
  double sum_of_means = 0;
  int next = 1;
  std::printf("  ranks with %d, %d, %d rows: means", rows[0], rows[1], rows[2]);
  for (const int count : rows) {
    double sum = 0;
    for (int i = 0; i < count; ++i) sum += next++;
    std::printf(" %.2f", sum / count);
    sum_of_means += sum / count;
  }
  std::printf(", their mean %.4f\n", sum_of_means / 3);
}

// Three steps of an optimizer: one weight, 1 at first, and the gradients 1, 1 and 0.1.
void three_steps(const char* name,
                 const std::function<std::unique_ptr<Optimizer>(const Tensor&)>& make) {
  const Tensor p = scalar(1).requires_grad_();
  const auto optimizer = make(p);
  std::printf("  %-22s", name);
  for (const double g : {1.0, 1.0, 0.1}) {
    p.set_grad(scalar(g));
    optimizer->step();
    std::printf("  %.5f", p.item<float>());
  }
  std::printf("\n");
}

int main() {
  kernels::set_mode(kernels::Mode::oracle);
  softmax_on_paper();
  std::printf("losses 1 2 3 4 5 6: their mean is 3.5\n");
  means({2, 2, 2});
  means({1, 2, 3});
  std::printf("p = 1, lr = 0.1, gradients 1, 1, 0.1: p after each step\n");
  three_steps("SGD", [](const Tensor& p) {
    return std::make_unique<SGD>(std::vector{p}, SGDOptions{.lr = 0.1});
  });
  three_steps("SGD, momentum 0.9", [](const Tensor& p) {
    return std::make_unique<SGD>(std::vector{p}, SGDOptions{.lr = 0.1, .momentum = 0.9});
  });
  three_steps("Adam", [](const Tensor& p) {
    return std::make_unique<Adam>(std::vector{p}, AdamOptions{.lr = 0.1});
  });
  three_steps("Adam, weight decay 0.5", [](const Tensor& p) {
    return std::make_unique<Adam>(std::vector{p}, AdamOptions{.lr = 0.1, .weight_decay = 0.5});
  });
  three_steps("AdamW, the same decay", [](const Tensor& p) {
    return std::make_unique<AdamW>(std::vector{p}, AdamOptions{.lr = 0.1, .weight_decay = 0.5});
  });
  // The weight after Adam's first step without the two bias corrections.
  std::printf("  Adam, no correction     %.5f\n", 1 - 0.1 * 0.1 / (std::sqrt(0.001) + 1e-8));
}
