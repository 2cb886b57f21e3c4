// Functions that a device computes in one kernel have the bits of the separate functions, keep no
// more memory than needed, and are launched once.
#include <cstring>

#include "runtime/autograd/autocast.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/device/memory.hpp"
#include "runtime/device/profiler.hpp"
#include "runtime/optim/optimizer.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;

namespace {

const Device kDevice = Device::cuda(0);

Tensor random_tensor(const Shape& sizes, std::uint64_t seed, DType dtype = DType::f32) {
  Tensor t = Tensor::empty(sizes);
  Generator g(seed);
  fill_normal(t.span<float>(), 0, 1, g);
  Tensor out = t.to(dtype).to(kDevice);
  out.requires_grad_();
  return out;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const auto x = a.to(DType::f32).to_vector<float>(), y = b.to(DType::f32).to_vector<float>();
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

std::int64_t calls_of(const std::string& name, const std::vector<profile::Row>& rows) {
  for (const profile::Row& row : rows)
    if (row.name == name) return row.calls;
  return 0;
}

}  // namespace

TEST_CASE("add_layer_norm on a device: an addition's and layer_norm's bits, and their gradients'",
          "[cuda]") {
  for (const bool autocast : {false, true})
    for (const std::int64_t n : {7, 96, 768, 1500}) {
      INFO("n " << n << ", autocast " << autocast);
      const auto run = [&](bool fused) {
        const DType branch = autocast ? DType::bf16 : DType::f32;
        std::vector<Tensor> leaves{random_tensor({3, 5, n}, 1), random_tensor({3, 5, n}, 2, branch),
                                   random_tensor({n}, 3), random_tensor({n}, 4)};
        const Autocast guard(DType::bf16, autocast);
        AddNorm got;
        if (fused) {
          got = add_layer_norm(leaves[0], leaves[1], leaves[2], leaves[3]);
        } else {
          got.sum = leaves[0] + leaves[1];
          got.normed = layer_norm(got.sum, leaves[2], leaves[3]);
        }
        // Both results are used, as in a transformer's block.
        sum(got.sum * random_tensor({3, 5, n}, 5) + tanh(got.normed) * got.sum).backward();
        std::vector<Tensor> out{got.sum.detach(), got.normed.detach()};
        for (const Tensor& leaf : leaves) out.push_back(leaf.grad());
        return out;
      };
      (void)profile::take_rows();
      profile::enable(true);
      const auto fused = run(true);
      profile::enable(false);
      const auto rows = profile::take_rows();
      CHECK(calls_of("add_layer_norm", rows) == 1);
      CHECK(calls_of("AddLayerNormBackward", rows) == 1);
      CHECK(calls_of("layer_norm", rows) == 0);
      const auto separate = run(false);
      for (std::size_t i = 0; i < fused.size(); ++i) {
        INFO("tensor " << i);
        CHECK(fused[i].dtype() == separate[i].dtype());
        CHECK(same_bits(fused[i], separate[i]));
      }
    }
}

TEST_CASE("cross_entropy on a device keeps no probabilities", "[cuda]") {
  constexpr std::int64_t kRows = 64, kClasses = 5000;
  constexpr std::size_t kLogits = kRows * kClasses * sizeof(float);
  const Tensor x = random_tensor({kRows, kClasses}, 1);
  const Tensor target = zeros({kRows}, {DType::i64, kDevice});
  device_allocator::reset_peak(kDevice);
  const auto before = device_allocator::stats(kDevice).current;
  const Tensor loss = cross_entropy(x, target);
  CHECK(device_allocator::stats(kDevice).peak.value < before.value + kLogits / 10);
  loss.backward();  // allocates the gradient, and nothing else of its size
  CHECK(device_allocator::stats(kDevice).peak.value < before.value + kLogits * 11 / 10);
  CHECK(x.grad().sizes() == x.sizes());
}

TEST_CASE("a step of Adam on a device is one kernel for parameters of one type and one count",
          "[cuda]") {
  std::vector<Tensor> params;
  for (std::uint64_t i = 0; i < 70; ++i) params.push_back(random_tensor({5}, i));
  for (std::uint64_t i = 0; i < 3; ++i) params.push_back(random_tensor({2, 3}, i, DType::f64));
  AdamW optimizer(params, {.lr = 0.1});
  const auto launches = [&] {
    (void)profile::take_rows();
    profile::enable(true);
    optimizer.step();
    profile::enable(false);
    const auto rows = profile::take_rows();
    CHECK(calls_of("adam", rows) == 0);
    return calls_of("adam_all", rows);
  };
  for (std::size_t i = 1; i < params.size(); ++i) params[i].set_grad(ones_like(params[i]));
  CHECK(launches() == 2);  // float, double
  params[0].set_grad(ones_like(params[0]));
  CHECK(launches() == 3);  // the first parameter's count is lower than the others'
  params[0].set_grad({});
  params[40].set_grad({});
  CHECK(launches() == 2);
}
