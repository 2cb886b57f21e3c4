// by_hand: six parameters on three ranks: the numbers that a rank sends in an all-reduce and in
// its two halves; the numbers that AdamW keeps, plain and divided; the gradients after a hook
// that forgets to divide.
#include <memory>

#include "lessons/09-ddp/ranks.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/comm/schedule/ring.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/beyond/zero.hpp"
#include "runtime/parallel/comm_hooks.hpp"
#include "runtime/parallel/ddp.hpp"

using namespace ringsmith;

namespace {

// Elements that each rank sends.
std::string sends(const comm::Schedule& schedule) {
  std::string text;
  for (const std::vector<comm::Step>& steps : schedule.steps) {
    std::size_t count = 0;
    for (const comm::Step& step : steps)
      for (int c = 0; step.sends() && c < step.chunks; ++c)
        count += schedule.chunks[static_cast<std::size_t>(step.send_chunk + c)].count;
    text += " " + std::to_string(count);
  }
  return text;
}

// Numbers of the state, without the count of steps.
std::size_t kept(const StateDict& state) {
  std::int64_t count = 0;
  for (const auto& [name, tensor] : state)
    if (name.find("exp_avg") != std::string::npos) count += tensor.numel();
  return static_cast<std::size_t>(count);
}

// One step of six parameters, whose gradients are 1 to 6, times 3, 30 and 300 on ranks 0, 1 and
// 2.
template <class Body>
void step(const Group& group, const Body& body) {
  Tensor w = zeros({6});
  w.requires_grad_();
  const Tensor x = arange(1, 7).to(DType::f32) * (group->rank() == 0   ? 3.0
                                                  : group->rank() == 1 ? 30.0
                                                                       : 300.0);
  DistributedDataParallel ddp({{"w", w}}, {}, group);
  body(ddp, w, [&] { ddp.forward([&] { return sum(mul(w, x)); }).backward(); });
}

}  // namespace

int main() {
  std::printf("numbers that each of three ranks sends, of six\n");
  std::printf("  all-reduce     %s\n", sends(comm::ring_all_reduce(3, 6)).c_str());
  std::printf("  reduce-scatter %s\n", sends(comm::ring_reduce_scatter(3, 6)).c_str());
  std::printf("  all-gather     %s\n", sends(comm::ring_all_gather(3, 6)).c_str());

  std::printf("numbers that AdamW keeps\n");
  on_ranks(3, [](const Group& group) {
    std::string text;
    step(group, [&](DistributedDataParallel&, const Tensor& w, const auto& backward) {
      AdamW plain({w}, {});
      backward();
      plain.step();
      text = "plain " + std::to_string(kept(plain.state_dict()));
    });
    step(group, [&](DistributedDataParallel& ddp, const Tensor&, const auto& backward) {
      ZeroRedundancyOptimizer divided(
          ddp, [](auto p) { return std::make_unique<AdamW>(std::move(p), AdamOptions{}); });
      backward();
      divided.step();
      // state_bytes() counts 4 bytes for each float, and 8 for the count of steps.
      text += ", divided " + std::to_string((divided.state_bytes().value - 8) / 4);
    });
    return text;
  });

  const auto hook = [](bool divides) {
    on_ranks(3, [&](const Group& group) {
      std::string text;
      step(group, [&](DistributedDataParallel& ddp, const Tensor& w, const auto& backward) {
        ddp.register_comm_hook(group, [&](const Group& g, const GradBucket& bucket) {
          return all_reduce(g, bucket.buffer, divides ? comm::ReduceOp::avg : comm::ReduceOp::sum);
        });
        backward();
        text = numbers(w.grad());
      });
      return text;
    });
  };
  std::printf("gradients after a hook that sums and divides\n");
  hook(true);
  std::printf("gradients after a hook that sums\n");
  hook(false);
}
