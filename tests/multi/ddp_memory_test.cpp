// Tests how much memory DDP adds to plain training. A step adds none, because the gradients are
// stored in the buckets. Construction (the broadcast's staging) and rebuilding the buckets around
// existing gradients temporarily add at most one buffer of the gradients' size.
#include "runtime/optim/optimizer.hpp"
#include "runtime/tensor/storage.hpp"
#include "tests/multi/ddp_support.hpp"
#include "tests/support/counting_group.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

constexpr std::int64_t kWidth = 512;
constexpr std::size_t kGradients = (2 * kWidth * kWidth + 2 * kWidth) * sizeof(float);
// Allowed in addition: padding of the buckets, usage maps, and rounding by the allocator.
constexpr std::size_t kConstant = std::size_t{64} << 10;

struct Mlp {
  Tensor w1 = trained(integers({kWidth, kWidth}, 1)), b1 = trained(integers({kWidth}, 2));
  Tensor w2 = trained(integers({kWidth, kWidth}, 3)), b2 = trained(integers({kWidth}, 4));
  Tensor x = integers({4, kWidth}, 5);
  NamedTensors parameters{{"w1", w1}, {"b1", b1}, {"w2", w2}, {"b2", b2}};
  SGD optimizer{{w1, b1, w2, b2}, {.lr = 0.01}};
  [[nodiscard]] Tensor loss() const { return sum(linear(relu(linear(x, w1, b1)), w2, b2)); }
};

std::size_t peak_of(const std::function<void()>& body) {
  host_allocator::reset_peak();
  body();
  return host_allocator::stats().peak.value;
}

}  // namespace

TEST_CASE("DDP needs no second copy of the gradients", "[ddp][memory]") {
  const bool to_none = GENERATE(true, false);
  const auto train = [&](Mlp& mlp, const std::function<Tensor()>& forward) {
    for (int step = 0; step < 4; ++step) {
      mlp.optimizer.zero_grad(to_none);
      forward().backward();
      mlp.optimizer.step();
    }
  };
  const std::size_t base = host_allocator::stats().current.value;
  const std::size_t plain = peak_of([&] {
    Mlp mlp;
    train(mlp, [&] { return mlp.loss(); });
  });
  REQUIRE(plain >= base + 2 * kGradients);  // parameters and gradients

  const auto counted = std::make_shared<CountingGroup>(shared_group());
  std::size_t running = 0;  // heap and communication memory
  const std::size_t peak = peak_of([&] {
    Mlp mlp;
    DistributedDataParallel ddp(mlp.parameters, {}, counted);
    const auto forward = [&] { return ddp.forward([&] { return mlp.loss(); }); };
    train(mlp, forward);
    running = peak_of([&] { train(mlp, forward); }) + counted->live();
  });
  INFO("plain " << plain - base << " B, DDP running " << running - base
                << " B, at its peak at most " << peak - base + counted->peak() << " B, gradients "
                << kGradients << " B");
  CHECK(running <= plain + kConstant);
  CHECK(peak + counted->peak() <= plain + kGradients + kConstant);
  CHECK(counted->live() == 0);
}
