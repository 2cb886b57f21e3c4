// Replays the golden trajectories in one process: the ranks compute one after the other, and
// ring_replay.hpp runs the ring's schedule on their buffers. If this test fails, the order of a sum
// in a kernel is wrong. If only the test with real ranks (tests/multi) fails, the runtime is wrong.
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/comm/schedule/ring.hpp"
#include "runtime/data/sampler.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/bucket.hpp"
#include "tests/reference/data.hpp"
#include "tests/reference/ring_replay.hpp"
#include "tests/reference/strict.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/kernel_mode.hpp"

using namespace ringsmith;
using namespace ringsmith::reference;

namespace {

struct Rank {
  std::vector<Tensor> params;
  std::vector<int> ready;  // parameters in the order in which their gradients were complete
  std::unique_ptr<SGD> optimizer;
};

Rank make_rank(const StrictRun& run) {  // every rank starts from rank 0's parameters
  Rank rank;
  for (const Tensor& p : run.init.at(0)) rank.params.push_back(p.clone().requires_grad_());
  rank.optimizer =
      std::make_unique<SGD>(rank.params, SGDOptions{.lr = run.lr, .momentum = run.momentum});
  return rank;
}

float forward_backward(Rank& rank, const Tensor& x, const Tensor& y) {
  const auto& p = rank.params;
  rank.optimizer->zero_grad();
  const Tensor loss = mse_loss(linear(relu(linear(x, p[0], p[1])), p[2], p[3]), y);
  loss.backward();
  return loss.item<float>();
}

void average(std::vector<Rank>& ranks, const BucketPlan& plan) {
  const int world = static_cast<int>(ranks.size());
  const float share = 1.0F / static_cast<float>(world);
  for (const BucketLayout& bucket : plan.buckets) {
    std::vector<std::vector<float>> work(ranks.size(), std::vector<float>(bucket.count.value));
    const auto visit = [&](const auto& f) {  // f(element of a gradient, its position in the bucket)
      for (std::size_t r = 0; r < ranks.size(); ++r)
        for (const BucketSlot& slot : bucket.slots) {
          const Tensor grad = ranks[r].params[static_cast<std::size_t>(slot.parameter)].grad();
          for (std::size_t i = 0; i < slot.count.value; ++i)
            f(grad.span<float>()[i], work[r][slot.offset.value + i]);
        }
    };
    visit([&](const float& grad, float& place) { place = grad * share; });
    replay(comm::gloo_ring_all_reduce(world, bucket.count.value, sizeof(float)), work);
    visit([&](float& grad, const float& place) { grad = place; });
  }
}

// Replays one run. Returns the first difference, or "".
std::string replay_run(const StrictRun& run) {
  std::vector<Rank> ranks;
  for (int r = 0; r < run.world; ++r) ranks.push_back(make_rank(run));
  for (std::size_t i = 0; i < ranks[0].params.size(); ++i)
    register_post_accumulate_grad_hook(
        ranks[0].params[i],
        [&ready = ranks[0].ready, i](const Tensor&) { ready.push_back(static_cast<int>(i)); });
  std::vector<BucketItem> items;
  for (const Tensor& p : ranks[0].params)
    items.push_back({Elements(static_cast<std::size_t>(p.numel())), DType::f32});
  BucketPlan plan = initial_plan(items, {}, false);
  for (std::size_t s = 0; s < run.steps.size(); ++s) {
    const StrictStep& step = run.steps[s];
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const float loss =
          forward_backward(ranks[r], rows(run.x, step.indices[r]), rows(run.y, step.indices[r]));
      if (!(loss == step.loss[r]))
        return fmt::format("step {}, rank {}: loss {:.9g}, expected {:.9g}", s, r, loss,
                           step.loss[r]);
    }
    average(ranks, plan);
    if (s == 0) {
      if (ranks[0].ready != std::vector<int>{3, 2, 1, 0})
        return fmt::format("gradients came in the order {}, expected b2, w2, b1, w1 (3 2 1 0)",
                           fmt::join(ranks[0].ready, " "));
      plan = rebuilt_plan(items, {}, ranks[0].ready);
    }
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      ranks[r].optimizer->step();
      for (std::size_t i = 0; i < step.params.size(); ++i) {
        const std::string why = bit_difference(ranks[r].params[i], step.params[i]);
        if (!why.empty())
          return fmt::format("after step {}, rank {}, parameter {}: {}", s, r, i, why);
      }
    }
  }
  return {};
}

std::string check_sampler(const StrictRun& run) {
  for (int r = 0; r < run.world; ++r) {
    DistributedSampler sampler(run.samples, {.replicas = run.world,
                                             .rank = r,
                                             .shuffle = true,
                                             .seed = static_cast<std::uint64_t>(run.sampler_seed)});
    std::size_t s = 0;
    for (std::int64_t epoch = 0; epoch < run.epochs; ++epoch) {
      sampler.set_epoch(epoch);
      const std::vector<std::int64_t> order = sampler.indices();
      for (std::size_t at = 0; at < order.size(); ++s) {
        const std::size_t end = std::min(at + static_cast<std::size_t>(run.batch), order.size());
        if (s >= run.steps.size() ||
            run.steps[s].indices[static_cast<std::size_t>(r)] !=
                std::vector<std::int64_t>(order.begin() + static_cast<std::ptrdiff_t>(at),
                                          order.begin() + static_cast<std::ptrdiff_t>(end)))
          return fmt::format("rank {}, step {}: another batch", r, s);
        at = end;
      }
    }
    if (s != run.steps.size()) return fmt::format("{} steps, expected {}", s, run.steps.size());
  }
  return {};
}

}  // namespace

TEST_CASE("real DistributedDataParallel runs are reproduced bit for bit at every step") {
  if (!has_part("strict")) return;
  const test::KernelMode oracle(kernels::Mode::oracle);
  const std::vector<std::string> names = list("strict");
  CHECK(!names.empty());
  if (is_shipped_set()) CHECK(names.size() == 5);
  std::size_t steps = 0;
  for (const std::string& name : names) {
    INFO(name);
    const StrictRun run = load_strict(name);
    CHECK(check_sampler(run) == "");
    CHECK(replay_run(run) == "");
    steps += run.steps.size();
  }
  fmt::print("reference: {} strict trajectories, {} steps\n", names.size(), steps);
  std::fflush(stdout);
}
