// training: lesson 04's points and circle, trained in 16 bits in several ways. With the argument
// gradients: the number of gradients of each power of two.
#include <cmath>
#include <cstdio>
#include <map>
#include <vector>

#include "kernels/mode.hpp"
#include "runtime/amp/grad_scaler.hpp"
#include "runtime/autograd/autocast.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/tensor/tensor.hpp"

using namespace ringsmith;

namespace {

struct Points {
  Tensor x, inside;
};

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

template <class Half>
void round_all(const std::vector<Tensor>& parameters) {
  for (const Tensor& p : parameters)
    for (std::int64_t i = 0; i < p.numel(); ++i) {
      float& value = p.data<float>()[i];
      value = static_cast<float>(Half(value));
    }
}

struct Way {
  const char* name;
  bool products = false;  // of forward and backward, in `dtype`
  bool weights = false;   // no masters: the optimizer's new weights are rounded
  DType dtype = DType::bf16;
  float loss_scale = 0;  // 0: without a scaler
  double unit = 1;       // unit of the loss: multiplies the gradients and divides lr
};

void train(const Way& way, const Points& points, std::map<int, int>* powers = nullptr) {
  manual_seed(1);  // the same initial weights for each way
  MLP model({2, 16, 2});
  SGD optimizer(model.parameters(), {.lr = 0.02 / way.unit, .momentum = 0.9});
  GradScaler scaler(
      {.init_scale = way.loss_scale != 0 ? way.loss_scale : 1.0, .enabled = way.loss_scale != 0});
  if (powers == nullptr) std::printf("%-34s", way.name);
  std::int64_t zeros = 0, all = 0, skipped = 0;
  for (int step = 1; step <= 2000; ++step) {
    optimizer.zero_grad();
    Tensor loss;
    {
      const Autocast autocast(way.dtype, way.products);
      loss = cross_entropy(model(points.x), points.inside);
    }
    scaler.scale(mul(loss, way.unit)).backward();
    for (const Tensor& p : model.parameters())
      for (const float g : p.grad().to_vector<float>()) {
        ++all;
        if (g == 0) ++zeros;
        if (g != 0 && powers != nullptr) ++(*powers)[std::ilogb(g)];
      }
    if (!scaler.step(optimizer)) ++skipped;
    scaler.update();
    if (way.weights && way.dtype == DType::bf16) round_all<bf16>(model.parameters());
    if (way.weights && way.dtype == DType::f16) round_all<f16>(model.parameters());
    if (powers != nullptr) continue;
    if (step == 1 || step == 100 || step == 500 || step == 2000)
      std::printf("  %.3f", static_cast<double>(loss.item<float>()));
  }
  if (powers != nullptr) return;
  std::printf("  %5.1f %%  %5lld", 100.0 * static_cast<double>(zeros) / static_cast<double>(all),
              static_cast<long long>(skipped));
  if (way.loss_scale != 0) std::printf("   2^%d", std::ilogb(scaler.get_scale()));
  std::printf("\n");
}

}  // namespace

int main(int argc, char**) {
  kernels::set_mode(kernels::Mode::oracle);
  const Points points = draw();
  const double small = 0x1p-18;
  const Way small_loss{.name = "loss / 2^18: all in f32", .unit = small};
  if (argc > 1) {
    std::map<int, int> powers;
    train(small_loss, points, &powers);
    for (const auto& [power, count] : powers) std::printf("%d %d\n", power, count);
    return 0;
  }
  std::printf("%-34s  loss: 1    100    500   2000  grad 0  skipped  scale\n", "");
  train({.name = "all in f32"}, points);
  train({.name = "products in bf16", .products = true}, points);
  train({.name = "products and weights in bf16", .products = true, .weights = true}, points);
  train({.name = "products in f16", .products = true, .dtype = DType::f16}, points);
  train(small_loss, points);
  const auto f16 = [&](const char* name, float scale) {
    return Way{
        .name = name, .products = true, .dtype = DType::f16, .loss_scale = scale, .unit = small};
  };
  train({.name = "loss / 2^18: products in bf16", .products = true, .unit = small}, points);
  train(f16("loss / 2^18: products in f16", 0), points);
  train(f16("  with a scale of 2^16", 0x1p16F), points);
  train(f16("  with a scale of 2^48", 0x1p48F), points);
}
