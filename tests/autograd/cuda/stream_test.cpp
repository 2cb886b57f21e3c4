// Nodes must run in order on the stream of their forward, and the host must not wait.
#include <algorithm>
#include <cmath>

#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/tensor_grad.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/tensor/tensor.hpp"
#include "tests/device/gate.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using ringsmith::test::Gate;

namespace {

const Device kDevice = Device::cuda(0);

Tensor leaf(double value, std::int64_t n = 1000, Device device = kDevice) {
  return full({n}, value).to(device).requires_grad_();
}

float only_value(const Tensor& t) {  // of all elements, which must be equal
  const std::vector<float> v = t.to_vector<float>();
  for (const float x : v)
    if (x != v[0]) return NAN;
  return v[0];
}

}  // namespace

TEST_CASE("backward runs on the stream of the forward, and the caller's stream waits for it") {
  const Tensor x = leaf(3);
  const Stream own = Stream::create(kDevice);
  own.wait(Stream::compute(kDevice));  // x is computed there
  Tensor y;
  {
    const StreamGuard guard(own);
    y = sum(x * x * x);
  }
  Gate gate(own);
  y.backward();  // the seed is created on the compute stream, everything else waits at the gate
  const Event after = Event::record(Stream::compute(kDevice));
  CHECK_FALSE(own.is_idle());
  CHECK_FALSE(after.has_happened());
  gate.open();
  CHECK(only_value(x.grad()) == 27);
}

TEST_CASE("branches on different streams meet in one gradient") {
  for (int round = 0; round < 20; ++round) {
    const Tensor x = leaf(2);
    const Stream compute = Stream::compute(kDevice);
    Tensor total = sum(x * 1.0);
    for (int b = 0; b < 3; ++b) {
      const Stream branch = Stream::create(kDevice);
      branch.wait(compute);
      Tensor part;
      {
        const StreamGuard guard(branch);
        part = sum(exp(x * 0.0) * (x * static_cast<double>(b + 1)));
      }
      compute.wait(branch);
      part.record_stream(compute);
      total = total + part;
    }
    total.backward();
    REQUIRE(only_value(x.grad()) == 1 + 1 + 2 + 3);
  }
}

TEST_CASE("a hook sees the stream that the gradient was made on") {
  const Tensor x = leaf(1);
  const Stream own = Stream::create(kDevice);
  own.wait(Stream::compute(kDevice));
  bool same = false;
  register_post_accumulate_grad_hook(
      x, [&](const Tensor&) { same = Stream::current(kDevice) == own; });
  Tensor y;
  {
    const StreamGuard guard(own);
    y = sum(x * 2.0);
  }
  y.backward();
  CHECK(same);
}

TEST_CASE("a graph over two devices and the CPU sends gradients back where they belong") {
  const Device other = Device::cuda(device_count() - 1);
  const Tensor a = leaf(2, 10), b = leaf(3, 10, other), c = leaf(5, 10, Device::cpu());
  const Tensor on_other = to(a, other) * b;
  const Tensor y = sum(to(on_other, Device::cpu()) * c * to(a, Device::cpu()));
  CHECK(y.device() == Device::cpu());
  y.backward();
  CHECK(a.grad().device() == kDevice);
  CHECK(b.grad().device() == other);
  CHECK(only_value(a.grad()) == 2 * 2 * 3 * 5);
  CHECK(only_value(b.grad()) == 2 * 2 * 5);
  CHECK(only_value(c.grad()) == 2 * 2 * 3);
  CHECK(to(a, kDevice).is_same(a));
}

TEST_CASE("gradients of a device do not go to leaves, targets or roots elsewhere") {
  const Tensor x = leaf(1, 3);
  CHECK_THROWS_WITH(x.set_grad(zeros({3})), ContainsSubstring("on cpu does not fit"));
  CHECK_THROWS_WITH(set_grad_target(x, zeros({3})), ContainsSubstring("on cuda:0"));
  CHECK_THROWS_WITH(sum(x).backward(ones({})), ContainsSubstring("on cpu does not fit"));
  const Tensor y = x * 2.0;
  CHECK_THROWS_WITH(y.move_to(Device::cpu()), ContainsSubstring("leaves"));
}

TEST_CASE("a leaf that moves takes its gradient, its hooks and its handles along") {
  const Tensor x = from_vector<float>({1, 2}).requires_grad_();
  const Tensor same = x;
  int calls = 0;
  register_post_accumulate_grad_hook(x, [&](const Tensor&) { ++calls; });
  sum(x * x).backward();
  x.move_to(kDevice);
  CHECK(same.device() == kDevice);
  CHECK(x.requires_grad());
  CHECK(x.grad().device() == kDevice);
  sum(x * x).backward();
  CHECK(calls == 2);
  CHECK(same.grad().to_vector<float>() == std::vector<float>{4, 8});
  x.move_to(Device::cpu());
  CHECK(x.grad().to_vector<float>() == std::vector<float>{4, 8});
}

TEST_CASE("dropout on a device: the same mask for the same seed, another one for the next call") {
  const auto draw = [](const Device device) {
    return dropout(full({4000}, 1).to(device), 0.25, true).to_vector<float>();
  };
  manual_seed(11);
  const auto first = draw(kDevice), second = draw(kDevice);
  manual_seed(11);
  CHECK(draw(kDevice) == first);
  CHECK(second != first);
  if (device_count() > 1) {
    manual_seed(11);
    CHECK(draw(Device::cuda(1)) != first);
    CHECK(draw(kDevice) == first);  // the other device's draws do not matter
  }
  const auto kept = std::count_if(first.begin(), first.end(), [](float v) { return v != 0; });
  CHECK(std::abs(static_cast<double>(kept) - 3000) < 5 * std::sqrt(4000 * 0.25 * 0.75));
}
