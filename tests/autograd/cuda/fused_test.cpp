// Functions that a device computes in one kernel have the bits of the separate functions, keep no
// more memory than needed, and are launched once.
#include <algorithm>
#include <cstring>

#include "kernels/cuda/matmul.hpp"
#include "runtime/autograd/autocast.hpp"
#include "runtime/autograd/engine.hpp"
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

// The largest difference, as a share of b's largest element.
float deviation(const Tensor& a, const Tensor& b) {
  const auto x = a.to(DType::f32).to_vector<float>(), y = b.to(DType::f32).to_vector<float>();
  float largest = 0, off = 0;
  for (std::size_t k = 0; k < x.size(); ++k) {
    largest = std::max(largest, std::abs(y[k]));
    if (!(std::abs(x[k] - y[k]) <= off)) off = std::abs(x[k] - y[k]);  // or NaN
  }
  return off / largest;
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

// cuBLASLt computes GELU of sums that are not rounded, and multiplies its slope by such a sum, so
// the results differ from the separate functions' by rounding.
TEST_CASE("feed_forward on a device: the separate functions' values and gradients", "[cuda]") {
  for (const bool by_library : {false, true})
    for (const std::int64_t width : {24, 17}) {  // of 17, the library does not compute GELU
      INFO("width " << width << ", cuBLASLt " << by_library);
      const auto run = [&](bool fused) {
        std::vector<Tensor> leaves{random_tensor({2, 9, 12}, 1), random_tensor({width, 12}, 2),
                                   random_tensor({width}, 3), random_tensor({12, width}, 4),
                                   random_tensor({12}, 5)};
        const Autocast guard(DType::bf16);
        const Tensor y = fused ? feed_forward(leaves[0], leaves[1], leaves[2], leaves[3], leaves[4])
                               : linear(gelu(linear(leaves[0], leaves[1], leaves[2]), Gelu::tanh),
                                        leaves[3], leaves[4]);
        sum(y * random_tensor({2, 9, 12}, 6)).backward();
        std::vector<Tensor> out{y.detach()};
        for (const Tensor& leaf : leaves) out.push_back(leaf.grad());
        return out;
      };
      if (by_library) kernels::cuda::set_matmul_version(7);
      (void)profile::take_rows();
      profile::enable(true);
      const auto fused = run(true);
      profile::enable(false);
      const auto rows = profile::take_rows();
      const bool library = kernels::cuda::uses_cublaslt();
      CHECK(calls_of("feed_forward", rows) == (library ? 1 : 0));
      CHECK(calls_of("FeedForwardBackward", rows) == (library ? 1 : 0));
      CHECK(calls_of("gelu", rows) == (library ? 0 : 1));
      const auto separate = run(false);
      kernels::cuda::set_matmul_version(0);
      for (std::size_t i = 0; i < fused.size(); ++i) {
        INFO("tensor " << i);
        REQUIRE(fused[i].dtype() == separate[i].dtype());
        // Three roundings to 8 bits, in sums whose terms partly cancel.
        CHECK(deviation(fused[i], separate[i]) <= (library ? 0.02F : 0.0F));
      }
    }
}

// A frozen layer needs no gradient; the other gradients keep their bits.
TEST_CASE("feed_forward computes only the gradients that are needed", "[cuda]") {
  kernels::cuda::set_matmul_version(7);
  const auto run = [&](std::size_t frozen) {
    std::vector<Tensor> leaves{random_tensor({5, 8}, 1), random_tensor({16, 8}, 2),
                               random_tensor({16}, 3), random_tensor({8, 16}, 4),
                               random_tensor({8}, 5)};
    if (frozen < leaves.size()) leaves[frozen] = leaves[frozen].detach();
    const Autocast guard(DType::bf16);
    sum(feed_forward(leaves[0], leaves[1], leaves[2], leaves[3], leaves[4])).backward();
    std::vector<Tensor> out;
    for (const Tensor& leaf : leaves) out.push_back(leaf.grad());
    return out;
  };
  const auto all = run(5);
  for (std::size_t frozen = 0; frozen < 5; ++frozen) {
    const auto some = run(frozen);
    for (std::size_t i = 0; i < 5; ++i) {
      INFO("frozen " << frozen << ", input " << i);
      CHECK(some[i].defined() == (i != frozen));
      // Without both gradients of a layer, the bias's is a kernel's, which sums in another order.
      if (i != frozen) CHECK(deviation(some[i], all[i]) <= 0.01F);
    }
  }
  kernels::cuda::set_matmul_version(0);
}

TEST_CASE("feed_forward names wrong arguments", "[cuda]") {
  const Tensor x = random_tensor({5, 8}, 1), up = random_tensor({16, 8}, 2),
               up_bias = random_tensor({16}, 3), down = random_tensor({8, 16}, 4),
               bias = random_tensor({8}, 5);
  for (const int version : {0, 7}) {
    kernels::cuda::set_matmul_version(version);
    const Autocast guard(DType::bf16);
    CHECK_THROWS_WITH(feed_forward(x, up, {}, down, bias), "feed_forward: x or a bias is missing");
    CHECK_THROWS_WITH(feed_forward(x, up, bias, down, bias),
                      ContainsSubstring("linear: bias [8] does not fit weight [16, 8]"));
    CHECK_THROWS_WITH(feed_forward(x, up, up_bias, up, bias),
                      ContainsSubstring("linear: x [5, 16] and weight [16, 8]"));
    // No rows.
    CHECK(feed_forward(x.slice(0, 0, 0), up, up_bias, down, bias).sizes() == Shape{0, 8});
  }
  kernels::cuda::set_matmul_version(0);
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

namespace {

// Returns the logits of a padded head in bf16, sliced to the classes as in GPT.
Tensor padded_logits(const Tensor& x, const Tensor& weight, std::int64_t classes) {
  return slice(linear(x, weight), 1, 0, classes);
}

struct PaddedLoss {
  float loss = 0;
  Tensor dx, dweight;
};
// If direct, runs the fused classifier. Otherwise the logits are first converted to f32.
PaddedLoss padded_loss(bool direct, std::int64_t classes, bool keep) {
  const Tensor x = random_tensor({12, 64}, 1), weight = random_tensor({640, 64}, 2);
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < 12; ++i) labels.push_back(i == 4 ? -100 : (i * 101) % classes);
  const Tensor target = from_vector(labels, {12}).to(kDevice);
  const Autocast guard(DType::bf16);
  Tensor logits = padded_logits(x, weight, classes), before;
  if (!direct) logits = to(logits, DType::f32);
  if (keep) before = logits.clone();
  const Tensor loss = cross_entropy(logits, target);
  CHECK(loss.dtype() == DType::f32);
  if (!keep) logits = Tensor();
  loss.backward();
  if (keep) CHECK(same_bits(logits, before));
  return {loss.item<float>(), x.grad(), weight.grad()};
}

}  // namespace

TEST_CASE("cross_entropy of bf16 logits in padded rows: no slice, no f32 copy, the same gradient",
          "[cuda][classifier]") {
  for (const std::int64_t classes : {517, 640})
    for (const bool keep : {false, true}) {
      INFO(classes << " of 640 columns, logits kept: " << keep);
      (void)profile::take_rows();
      profile::enable(true);
      const PaddedLoss fused = padded_loss(true, classes, keep);
      profile::enable(false);
      double bytes = 0;
      for (const profile::Row& row : profile::take_rows())
        if (row.name == "cross_entropy" || row.name == "CrossEntropyBackward" ||
            row.name == "SliceBackward")
          bytes += row.work.bytes;
      // 2 bytes per logit are read in forward, 2 read and 2 written in backward.
      CHECK(bytes < 6.2 * 12 * 640);
      const PaddedLoss separate = padded_loss(false, classes, keep);
      CHECK(fused.loss == Approx(separate.loss).epsilon(1e-6));
      // Both gradients are rounded to bf16 once, from floats that differ by their order of sums.
      const auto close = [](const Tensor& a, const Tensor& b) {
        const auto p = a.to_vector<float>(), q = b.to_vector<float>();
        double off = 0, size = 0;
        for (std::size_t i = 0; i < p.size(); ++i) {
          off = std::max(off, std::abs(double{p[i]} - double{q[i]}));
          size = std::max(size, std::abs(double{q[i]}));
        }
        return off <= 0x1p-8 * size;
      };
      CHECK(close(fused.dx, separate.dx));
      CHECK(close(fused.dweight, separate.dweight));
      // The padding's weights have no gradient.
      const auto rows = fused.dweight.slice(0, classes, 640).contiguous().to_vector<float>();
      CHECK(std::all_of(rows.begin(), rows.end(), [](float v) { return v == 0; }));
    }
}

TEST_CASE("the gradient overwrites the logits only if nobody can read them again",
          "[cuda][classifier]") {
  const Tensor weight = random_tensor({640, 64}, 2), x = random_tensor({2000, 64}, 1);
  const Tensor target = zeros({2000}, {DType::i64, kDevice});
  constexpr std::size_t kLogits = 2000 * 640 * 2;
  const auto peak_of_backward = [&](bool keep, bool retain) {
    const Autocast guard(DType::bf16);
    Tensor logits = padded_logits(x, weight, 517);
    const Tensor loss = cross_entropy(logits, target);
    if (!keep) logits = Tensor();
    const auto before = device_allocator::stats(kDevice).current;
    device_allocator::reset_peak(kDevice);
    backward({loss}, {}, retain);
    const auto peak = device_allocator::stats(kDevice).peak.value - before.value;
    if (retain) {  // a second backward reads the same logits
      const auto first = weight.grad().to_vector<float>();
      weight.set_grad({});
      backward({loss}, {}, false);
      CHECK(weight.grad().to_vector<float>() == first);
    }
    weight.set_grad({});
    x.set_grad({});
    return peak;
  };
  CHECK(peak_of_backward(false, false) < kLogits);
  CHECK(peak_of_backward(true, false) >= kLogits);
  CHECK(peak_of_backward(false, true) >= kLogits);
}
