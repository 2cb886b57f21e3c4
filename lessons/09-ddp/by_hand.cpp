// by_hand: three ranks, three parameters, six gradients, averaged by the runtime.
//
// The loss is w times x, summed: its gradient for w is x, so that each rank's data are its
// gradients. They are multiples of 3 on rank 0, of 30 on rank 1 and of 300 on rank 2, so the
// digits of an average show which ranks' gradients are in it.
#include "lessons/09-ddp/ranks.hpp"
#include "runtime/autograd/engine.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/ddp.hpp"
#include "runtime/tensor/tensor.hpp"

using namespace ringsmith;

namespace {

std::string line(const NamedTensors& model, bool gradients) {
  std::string text;
  for (const auto& [name, w] : model)
    text += name + "  " + numbers(gradients ? w.grad() : w.detach()) + "     ";
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

}  // namespace

int main() {
  const auto run = [](const char* title, int stage) {
    std::printf("%s\n", title);
    on_ranks(3, [&](const Group& group) {
      // Before DDP wraps them, the models of the ranks differ.
      NamedTensors model;
      for (int p = 0; p < 3; ++p) {
        Tensor w = full({2}, group->rank() + 1.0);
        w.requires_grad_();
        model.emplace_back("w" + std::to_string(p), w);
      }
      // Caps of 8 bytes: every parameter is a bucket.
      DistributedDataParallel ddp(
          model, {}, group, {.bucket_cap_mb = 8.0 / (1 << 20), .first_bucket_mb = 8.0 / (1 << 20)});
      if (stage == 1) return line(model, false);
      const double unit[] = {3, 30, 300};
      const auto loss = [&] {
        Tensor sum_of_all = scalar(0);
        for (int p = 0; p < 3; ++p) {
          const double first = unit[group->rank()] * (2 * p + 1),
                       second = unit[group->rank()] * (2 * p + 2);
          const Tensor x =
              from_vector<float>({static_cast<float>(first), static_cast<float>(second)});
          sum_of_all = add(sum_of_all, sum(mul(model[static_cast<std::size_t>(p)].second, x)));
        }
        return sum_of_all;
      };
      if (stage == 2) {
        const auto local = ddp.no_sync();
        ddp.forward(loss).backward();
        return line(model, true);
      }
      ddp.forward(loss).backward();
      if (stage == 3) return line(model, true);
      std::vector<Tensor> parameters;
      for (const auto& named : model) parameters.push_back(named.second);
      SGD optimizer(parameters, {.lr = 0.001});
      optimizer.step();
      return line(model, false);
    });
  };
  run("parameters after construction: rank 0's", 1);
  run("gradients of a backward under no_sync: each rank's own", 2);
  run("gradients of a backward: the average", 3);
  run("parameters after a step of SGD with lr 0.001", 4);
}
