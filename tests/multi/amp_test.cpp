// Ranks agree on skipped steps. An inf on one rank makes all ranks skip: under DDP through the
// all-reduce, otherwise through an agreement.
#include <limits>
#include <optional>

#include "runtime/amp/grad_scaler.hpp"
#include "runtime/autograd/autocast.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/agreement.hpp"
#include "tests/multi/ddp_support.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Collective. True if all ranks have the same number.
bool agreed(double value) { return variants(std::to_string(value)) == 1; }

}  // namespace

TEST_CASE("amp: one rank's infinite gradient makes all ranks skip, through the all-reduce") {
  Generator g(5);
  const Tensor w = trained(mul(randn({4, 6}, g), 0.2)), b = trained(mul(randn({4}, g), 0.2));
  const NamedTensors parameters{{"w", w}, {"b", b}};
  DistributedDataParallel ddp(parameters, {}, shared_group());
  SGD optimizer({w, b}, {.lr = 0.01});
  GradScaler scaler({.init_scale = 1024, .growth_interval = 3});
  std::vector<bool> stepped;
  std::vector<double> scales;
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    const Tensor x = randn({3, 6}, g);
    if (step % 4 == 2 && group().rank() == (step / 4) % group().size()) x.data<float>()[7] = 7e4F;
    Tensor loss;
    {
      const Autocast autocast(DType::f16);
      loss = mean(to(ddp.forward([&] { return linear(x, w, b); }), DType::f32));
    }
    scaler.scale(loss).backward();
    const std::string before = bits_of(w) + bits_of(b);
    stepped.push_back(scaler.step(optimizer));
    scaler.update();
    scales.push_back(scaler.get_scale());
    CHECK((bits_of(w) + bits_of(b) == before) == !stepped.back());
    CHECK(variants(bits_of(w) + bits_of(b)) == 1);
    CHECK(agreed(scaler.get_scale()));
  }
  CHECK(stepped == std::vector<bool>{true, true, false, true, true, true, false, true, true, true});
  CHECK(scales == std::vector<double>{1024, 1024, 512, 512, 512, 1024, 512, 512, 512, 1024});
}

TEST_CASE(
    "amp: the scaler may be made before or after DDP, but all ranks must begin with one scale") {
  const auto train = [](bool scaler_first, double scale) {
    Generator g(5);
    const Tensor w = trained(mul(randn({4, 6}, g), 0.2));
    std::optional<GradScaler> scaler;
    if (scaler_first) scaler.emplace(GradScalerOptions{.init_scale = scale});
    DistributedDataParallel ddp({{"w", w}}, {}, shared_group());
    if (!scaler_first) scaler.emplace(GradScalerOptions{.init_scale = scale});
    SGD optimizer({w}, {.lr = 0.1});
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const Tensor x = randn({3, 6}, g);
      Tensor loss;
      {
        const Autocast autocast(DType::bf16);
        loss = mean(to(ddp.forward([&] { return linear(x, w); }), DType::f32));
      }
      scaler->scale(loss).backward();
      scaler->step(optimizer);
      scaler->update();
    }
    return bits_of(w);
  };
  const std::string first = train(true, 256);
  CHECK(first == train(false, 256));
  CHECK(variants(first) == 1);
  // A different scale divides the same averaged gradients by a different number.
  const std::string apart = train(true, group().rank() == 0 ? 256 : 512);
  CHECK(variants(apart) == (group().size() == 1 ? 1 : 2));
}

TEST_CASE("amp: with an agreement, ranks whose gradients stay local skip together") {
  const Tensor w = trained(ones({3}));
  SGD optimizer({w}, {.lr = 1});
  const int last = group().size() - 1;
  for (const bool with_gradients : {true, false}) {
    GradScaler scaler({.init_scale = 16, .any_rank = any_rank(shared_group())});
    (void)scaler.scale(sum(w));
    for (int step = 0; step < 4; ++step) {
      const bool bad = step == 1 && group().rank() == last;
      // Otherwise only the last rank has gradients, as if each rank owned a shard.
      const bool mine = with_gradients || group().rank() == last;
      w.set_grad(mine ? full({3}, bad ? kInf : 16.0F) : Tensor());
      CHECK(scaler.step(optimizer) == (step != 1));
      scaler.update();
      CHECK(scaler.get_scale() == (step < 1 ? 16 : 8));
    }
  }
}
