// feedback: the ranks send only some of the gradients, and drop or keep the others.
//
//   lesson17_feedback hand      two ranks, two parameters, one of them travels
//   lesson17_feedback           lesson 04's points on three ranks, 4 of 82 gradients travel
//   lesson17_feedback curves    the same, the loss of every 20th step
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/mode.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/tensor/tensor.hpp"

using namespace ringsmith;

namespace {

enum class Rest { travels, waits, is_forgotten };

using Row = std::vector<float>;

// One rank's sender. choose() keeps the values to send in `gradient`, and sets the others to
// zero.
struct Sender {
  std::size_t most = 0;
  Rest rest = Rest::travels;
  Row error = {};

  void choose(Row& gradient) {
    if (rest == Rest::travels) return;
    error.resize(gradient.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += error[i];
    Row sizes = gradient;
    for (float& size : sizes) size = std::fabs(size);
    std::sort(sizes.rbegin(), sizes.rend());
    const float least = sizes[most - 1];
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const bool sent = std::fabs(gradient[i]) >= least;
      error[i] = sent || rest == Rest::is_forgotten ? 0 : gradient[i];
      if (!sent) gradient[i] = 0;
    }
  }
};

void hand(Rest rest) {
  Sender ranks[2] = {{1, rest}, {1, rest}};
  float w[2] = {0, 0};
  for (int step = 1; step <= 300; ++step) {
    Row a{100, 1}, b{-100, 1};
    ranks[0].choose(a);
    ranks[1].choose(b);
    for (int i = 0; i < 2; ++i) w[i] -= 0.01F * (a[i] + b[i]) / 2;
    if (step == 1 || step == 100 || step == 101 || step == 300)
      std::printf("  step %3d   rank 0 sends %4g %4g   rank 1 sends %4g %4g   w %g %g\n", step,
                  static_cast<double>(a[0]), static_cast<double>(a[1]), static_cast<double>(b[0]),
                  static_cast<double>(b[1]), static_cast<double>(w[0]), static_cast<double>(w[1]));
  }
}

void train(const char* name, std::size_t most, Rest rest, bool curves) {
  constexpr std::int64_t kRanks = 3, kEach = 42;
  manual_seed(1);
  MLP model({2, 16, 2});
  SGD optimizer(model.parameters(), {.lr = 0.2});
  Generator generator(7);
  const Tensor points = rand({kRanks * kEach, 2}, generator) * 2.0 + -1.0;
  std::vector<std::int64_t> inside;
  for (std::size_t i = 0; i < kRanks * kEach; ++i)
    inside.push_back(std::hypot(points.data<float>()[2 * i], points.data<float>()[2 * i + 1]) <
                     0.8F);
  const Tensor labels = from_vector(inside);
  std::vector<Sender> senders(kRanks, {most, rest});
  std::printf("%-34s", name);
  for (int step = 1; step <= 2000; ++step) {
    Row average;
    float loss_of_all = 0;
    for (std::int64_t rank = 0; rank < kRanks; ++rank) {
      optimizer.zero_grad();
      const auto mine = [&](const Tensor& all) {
        return all.slice(0, rank * kEach, (rank + 1) * kEach);
      };
      const Tensor loss = cross_entropy(model(mine(points)), mine(labels));
      loss.backward();
      loss_of_all += loss.item<float>() / kRanks;
      Row gradient;
      for (const Tensor& p : model.parameters())
        for (const float g : p.grad().to_vector<float>()) gradient.push_back(g);
      senders[static_cast<std::size_t>(rank)].choose(gradient);
      average.resize(gradient.size());
      for (std::size_t i = 0; i < gradient.size(); ++i) average[i] += gradient[i] / kRanks;
    }
    std::size_t at = 0;
    for (const Tensor& p : model.parameters())
      for (std::int64_t i = 0; i < p.numel(); ++i) p.grad().data<float>()[i] = average[at++];
    optimizer.step();
    if (curves ? step % 20 == 1 : step == 1 || step == 100 || step == 500 || step == 2000)
      std::printf("  %.3f", static_cast<double>(loss_of_all));
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  kernels::set_mode(kernels::Mode::oracle);
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "hand") {
    std::printf("what is not sent is forgotten\n");
    hand(Rest::is_forgotten);
    std::printf("what is not sent waits\n");
    hand(Rest::waits);
    return 0;
  }
  const bool curves = what == "curves";
  if (!curves) std::printf("%-34s  loss: 1    100    500   2000\n", "");
  train("all 82 travel", 82, Rest::travels, curves);
  train("4 travel, the rest waits", 4, Rest::waits, curves);
  train("4 travel, the rest is forgotten", 4, Rest::is_forgotten, curves);
  train("1 travels, the rest waits", 1, Rest::waits, curves);
  train("1 travels, the rest is forgotten", 1, Rest::is_forgotten, curves);
}
