// uneven: three ranks with three, one and two batches, without join() and with it in three modes.
#include "lessons/09-ddp/ranks.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/ddp.hpp"

using namespace ringsmith;

namespace {

// A gradient of 6 on every rank that has a batch, and a learning rate of 1.
void train(const Group& group, std::string& text, DistributedDataParallel& ddp, const Tensor& w) {
  const int batches[] = {3, 1, 2};
  SGD optimizer({w}, {.lr = 1});
  for (int i = 0; i < batches[group->rank()]; ++i) {
    optimizer.zero_grad();
    ddp.forward([&] { return sum(mul(w, 6)); }).backward();
    text += "gradient " + numbers(w.grad());
    optimizer.step();
    text += ", w " + numbers(w.detach()) + "   ";
  }
}

void run(
    const char* title,
    const std::function<void(DistributedDataParallel&, const std::function<void()>&)>& around) {
  std::printf("%s\n", title);
  on_ranks(3, [&](const Group& group) {
    Tensor w = zeros({1});
    w.requires_grad_();
    DistributedDataParallel ddp({{"w", w}}, {}, group);
    std::string text;
    around(ddp, [&] { train(group, text, ddp, w); });
    return text + "at the end " + numbers(w.detach());
  });
}

}  // namespace

int main(int argc, char**) {
  if (argc > 1) {
    run("without join()", [](DistributedDataParallel&, const auto& body) { body(); });
    return 0;
  }
  run("divided by all ranks",
      [](DistributedDataParallel& ddp, const auto& body) { ddp.join(body); });
  run("divided by those that have a batch", [](DistributedDataParallel& ddp, const auto& body) {
    ddp.join(body, {.divide_by_initial_world_size = false});
  });
  run("no shadows", [](DistributedDataParallel& ddp, const auto& body) {
    ddp.join(body, {.throw_on_early_termination = true});
  });
}
