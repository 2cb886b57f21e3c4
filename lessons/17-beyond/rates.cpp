// rates: a hook that forgets 1/N, compared with one that divides, with several optimizers.
#include <functional>
#include <memory>

#include "kernels/mode.hpp"
#include "lessons/09-ddp/ranks.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/comm_hooks.hpp"
#include "runtime/parallel/ddp.hpp"

using namespace ringsmith;

namespace {

constexpr int kRanks = 4;
using Make = std::function<std::unique_ptr<Optimizer>(const std::vector<Tensor>&, double lr)>;

Make sgd(double momentum) {
  return [=](const std::vector<Tensor>& p, double lr) {
    return std::make_unique<SGD>(p, SGDOptions{.lr = lr, .momentum = momentum});
  };
}
std::unique_ptr<Optimizer> adamw(const std::vector<Tensor>& p, double lr) {
  return std::make_unique<AdamW>(p, AdamOptions{.lr = lr});
}

std::vector<float> train(const Make& make, double lr, bool divides, double clip) {
  std::vector<std::unique_ptr<MLP>> models;
  for (int r = 0; r < kRanks; ++r) {
    manual_seed(1);
    models.push_back(std::make_unique<MLP>(std::vector<std::int64_t>{2, 16, 2}));
  }
  std::vector<float> found;
  on_ranks(
      kRanks,
      [&](const Group& group) {
        MLP& model = *models[static_cast<std::size_t>(group->rank())];
        Generator random(static_cast<std::uint64_t>(7 + group->rank()));
        const Tensor x = rand({32, 2}, random) * 2.0 + -1.0;
        std::vector<std::int64_t> inside;
        for (std::size_t i = 0; i < 32; ++i) {
          const float u = x.data<float>()[2 * i], v = x.data<float>()[2 * i + 1];
          inside.push_back(u * u + v * v < 0.64F ? 1 : 0);
        }
        DistributedDataParallel ddp(model, group);
        ddp.register_comm_hook(group, [=](const Group& g, const GradBucket& bucket) {
          return all_reduce(g, bucket.buffer, divides ? comm::ReduceOp::avg : comm::ReduceOp::sum);
        });
        const auto optimizer = make(model.parameters(), lr);
        Tensor loss;
        for (int step = 0; step < 100; ++step) {
          optimizer->zero_grad();
          loss = cross_entropy(ddp.forward(x), from_vector(inside));
          loss.backward();
          if (clip > 0) clip_grad_norm_(model.parameters(), clip);
          optimizer->step();
        }
        if (group->rank() == 0) {
          found.push_back(loss.item<float>());
          for (const Tensor& p : model.parameters())
            for (const float value : p.to_vector<float>()) found.push_back(value);
        }
        return std::string();
      },
      false);
  return found;
}

void compare(const char* name, const Make& make, double lr, double clip = 0) {
  const auto right = train(make, lr, true, clip), wrong = train(make, lr, false, clip),
             faster = train(make, kRanks * lr, true, clip);
  std::printf("%-22s %.3f   %.3f   %.3f   %s\n", name, static_cast<double>(right[0]),
              static_cast<double>(wrong[0]), static_cast<double>(faster[0]),
              wrong == faster  ? "the bits of lr x 4"
              : wrong == right ? "the bits of the right one"
                               : "neither");
}

}  // namespace

int main() {
  kernels::set_mode(kernels::Mode::oracle);
  std::printf("loss after 100 steps   right   no 1/N  lr x 4\n");
  compare("SGD, lr 0.05", sgd(0), 0.05);
  compare("SGD, momentum, lr 0.3", sgd(0.9), 0.3);
  compare("AdamW, lr 0.01", adamw, 0.01);
  compare("SGD, clipped at 0.01", sgd(0), 0.5, 0.01);
}
