// Shows by the order of events, without a clock, that communication proceeds during backward.
#include <chrono>
#include <thread>

#include "tests/multi/ddp_support.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

TEST_CASE("the first bucket is reduced before the last gradient is computed", "[ddp][overlap]") {
  // Three layers, three buckets. When backward reaches the middle layer, the last layer's bucket is
  // in flight and the first layer has not started. The middle layer's hook waits until that bucket
  // is reduced. A reducer that launches after backward, or makes progress only in wait(), fails.
  const Tensor w1 = trained(integers({64, 64}, 1)), w2 = trained(integers({64, 64}, 2));
  const Tensor w3 = trained(integers({64, 64}, 3)), x = integers({2, 64}, 4);
  DistributedDataParallel ddp(
      {{"w1", w1}, {"w2", w2}, {"w3", w3}}, {}, shared_group(),
      {.bucket_cap_mb = 0.001, .first_bucket_mb = 0.001, .overlap = Overlap::on});
  const auto step = [&] {
    for (const Tensor& w : {w1, w2, w3}) w.set_grad({});
    ddp.forward([&] { return sum(linear(linear(linear(x, w1), w2), w3)); }).backward();
  };
  step();  // one bucket, because the order of the gradients is still unknown

  bool met = false;
  register_post_accumulate_grad_hook(w2, [&](const Tensor&) {
    const Reducer& reducer = ddp.reducer();
    REQUIRE(reducer.plan().buckets.size() == 3);
    REQUIRE(reducer.launched() == 1);  // the program's hooks run before DDP takes the gradient
    REQUIRE_FALSE(w1.grad().defined());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!reducer.all_launched_are_in() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
    met = reducer.all_launched_are_in();
  });
  step();
  REQUIRE(met);
  REQUIRE(ddp.statistics().buckets[0].launched <= ddp.statistics().buckets[1].launched);
  REQUIRE(ddp.statistics().buckets[1].launched < ddp.statistics().compute_end);
}

TEST_CASE("without overlap no bucket starts before backward is over, and the sums are the same",
          "[ddp][overlap]") {
  const Tensor x = integers({2, 64}, 4);
  std::vector<std::vector<float>> gradients;
  for (const Overlap overlap : {Overlap::on, Overlap::off, Overlap::alternate}) {
    const Tensor w1 = trained(integers({64, 64}, 1)), w2 = trained(integers({64, 64}, 2));
    DistributedDataParallel ddp(
        {{"w1", w1}, {"w2", w2}}, {}, shared_group(),
        {.bucket_cap_mb = 0.001, .first_bucket_mb = 0.001, .overlap = overlap});
    std::vector<bool> early;
    for (int step = 0; step < 4; ++step) {  // from the second step on, one bucket per layer
      for (const Tensor& w : {w1, w2}) w.set_grad({});
      ddp.forward([&] { return sum(linear(linear(x, w1), w2)); }).backward();
      if (step == 0) continue;
      const auto& statistics = ddp.statistics();
      early.push_back(statistics.buckets[0].launched < statistics.compute_end);
    }
    REQUIRE(ddp.reducer().plan().buckets.size() == 2);
    const bool in_even = overlap != Overlap::off, in_odd = overlap == Overlap::on;
    if (shared_group()->size() > 1) REQUIRE(early == std::vector<bool>{in_even, in_odd, in_even});
    std::vector<float>& all = gradients.emplace_back();
    for (const Tensor& w : {w1, w2})
      for (const float g : w.grad().to_vector<float>()) all.push_back(g);
  }
  REQUIRE(gradients[0] == gradients[1]);
  REQUIRE(gradients[0] == gradients[2]);
}
