#include "runtime/autograd/autocast.hpp"

#include <cmath>
#include <map>
#include <string>
#include <thread>

#include "runtime/autograd/engine.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/device/profiler.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/device.hpp"

using namespace ringsmith;

namespace {

Tensor drawn(const Shape& sizes, std::uint64_t seed, DType dtype = DType::f32) {
  Generator g(seed);
  return randn(sizes, g).to(dtype).to(test::device());
}
Tensor parameter(const Shape& sizes, std::uint64_t seed, DType dtype = DType::f32) {
  const Tensor t = drawn(sizes, seed, dtype);
  t.requires_grad_();
  return t;
}

std::vector<float> values(const Tensor& t) { return t.to(DType::f32).to_vector<float>(); }

// Returns the largest |a - b| / max(1, |b|), or infinity if there is a NaN or the sizes differ.
double distance(const Tensor& a, const Tensor& b) {
  const auto x = values(a), y = values(b);
  if (x.size() != y.size()) return HUGE_VAL;
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double d = std::abs(x[i] - y[i]) / std::max(1.0, std::abs(double{y[i]}));
    if (!(d <= most)) most = std::isnan(d) ? HUGE_VAL : d;
  }
  return most;
}

Tensor labels(std::int64_t n) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back(i % 3);
  return from_vector(out).to(test::device());
}

}  // namespace

TEST_CASE("autocast: PyTorch's lists say in which dtype a function computes", "[functions]") {
  const Tensor x = drawn({6, 4}, 1), w = parameter({5, 4}, 2), b = parameter({5}, 3);
  const Tensor half = drawn({6, 4}, 4, DType::bf16), image = drawn({2, 3, 6, 6}, 5);
  const Tensor kernel = parameter({4, 3, 3, 3}, 6), heads = drawn({1, 2, 3, 4}, 7);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Autocast autocast(dtype);
    CHECK(linear(x, w, b).dtype() == dtype);
    CHECK(matmul(x, transpose(w, 0, 1)).dtype() == dtype);
    CHECK(conv2d(image, kernel, {}).dtype() == dtype);
    CHECK(attention(heads, heads, heads, true).dtype() == dtype);
    CHECK(attention_qkv(drawn({2, 3, 12}, 8), 2, true).dtype() == dtype);
    for (const Tensor& t : {half, x}) {
      CHECK(softmax(t, 1).dtype() == DType::f32);
      CHECK(log_softmax(t, 1).dtype() == DType::f32);
      CHECK(layer_norm(t, parameter({4}, 9), parameter({4}, 10)).dtype() == DType::f32);
      CHECK(cross_entropy(t, labels(6)).dtype() == DType::f32);
      CHECK(nll_loss(t, labels(6)).dtype() == DType::f32);
      CHECK(mse_loss(t, half).dtype() == DType::f32);
      CHECK(exp(t).dtype() == DType::f32);
      CHECK(log(t).dtype() == DType::f32);
      CHECK(pow(t, 2).dtype() == DType::f32);
      CHECK(sum(t).dtype() == DType::f32);
      CHECK(relu(t).dtype() == t.dtype());
      CHECK(gelu(t).dtype() == t.dtype());
      CHECK(mean(t).dtype() == t.dtype());
    }
    CHECK(cat({half, x}, 0).dtype() == DType::f32);
    CHECK(cat({half, half}, 0).dtype() == DType::bf16);
    CHECK(add(half, x).dtype() == DType::f32);
    CHECK(matmul(x.to(DType::f64), x.to(DType::f64).transpose(0, 1)).dtype() == DType::f64);
    {
      const Autocast off(dtype, false);
      CHECK(linear(x, w, b).dtype() == DType::f32);
      CHECK(softmax(half, 1).dtype() == DType::bf16);
    }
    CHECK(linear(x, w, b).dtype() == dtype);
    DType elsewhere = DType::f64;
    std::thread([&] { elsewhere = linear(x, w, b).dtype(); }).join();
    CHECK(elsewhere == DType::f32);
  }
  CHECK(linear(x, w, b).dtype() == DType::f32);
  CHECK(cross_entropy(half, labels(6)).dtype() == DType::bf16);
}

TEST_CASE("autocast: gradients arrive in f32 and are near those of f32", "[functions]") {
  const Tensor x = drawn({8, 16}, 1);
  const std::vector<Tensor> p{parameter({12, 16}, 2), parameter({12}, 3), parameter({3, 12}, 4),
                              parameter({3}, 5)};
  const auto gradients = [&](bool enabled) {
    {
      const Autocast autocast(DType::bf16, enabled);
      const Tensor y = linear(gelu(linear(x, p[0], p[1])), p[2], p[3]);
      cross_entropy(y, labels(8)).backward();
    }
    std::vector<Tensor> out;
    for (const Tensor& each : p) {
      REQUIRE(each.grad().dtype() == DType::f32);
      out.push_back(each.grad());
      each.set_grad({});
    }
    return out;
  };
  const auto mixed = gradients(true), plain = gradients(false);
  for (std::size_t i = 0; i < p.size(); ++i) {
    CHECK(distance(mixed[i], plain[i]) < 0.02);  // a few roundings to bf16
    CHECK(distance(mixed[i], plain[i]) > 0);
  }
}

TEST_CASE("autocast: a parameter is cast once in a guard, and again when it changes",
          "[functions]") {
  const Tensor x = drawn({2, 3}, 1), w = parameter({2, 3}, 2);
  const auto cast = [&] { return autocast::lower(w); };
  {
    const Autocast autocast(DType::bf16);
    const Tensor first = cast();
    CHECK(first.dtype() == DType::bf16);
    CHECK(cast().is_same(first));
    {
      const Autocast inner(DType::bf16);
      CHECK(cast().is_same(first));
      const Autocast other(DType::f16);
      CHECK(cast().dtype() == DType::f16);
    }
    const Tensor again = cast();
    CHECK(again.dtype() == DType::bf16);
    w.fill_(2);
    CHECK(values(cast()) == std::vector<float>(6, 2.0F));
    Tensor unrecorded;
    {
      const NoGradGuard no_grad;
      unrecorded = cast();
      CHECK_FALSE(unrecorded.requires_grad());
    }
    CHECK(cast().requires_grad());
    // Activations and tensors that need no gradient are not cached.
    CHECK_FALSE(autocast::lower(x).is_same(autocast::lower(x)));
    // The first of two steps in one guard consumes the cast's graph.
    for (int i = 0; i < 2; ++i) sum(linear(x, w)).backward();
    CHECK(w.grad().dtype() == DType::f32);
  }
  CHECK(cast().is_same(w));
}

TEST_CASE("autocast: a weight that is used twice gets both gradients", "[functions]") {
  const Tensor x = drawn({4, 4}, 1), w = parameter({4, 4}, 2);
  const Autocast autocast(DType::bf16);
  sum(linear(linear(x, w), w)).backward();
  const Tensor both = w.grad();
  w.set_grad({});
  const Autocast off(DType::bf16, false);
  sum(linear(linear(x, w), w)).backward();
  CHECK(distance(both, w.grad()) < 0.03);
}

TEST_CASE("autocast: a dtype that is not 16 bits is refused", "[functions]") {
  for (const DType dtype : {DType::f32, DType::f64, DType::i64}) {
    std::string message;
    try {
      const Autocast autocast(dtype);
    } catch (const UsageError& e) {
      message = e.what();
    }
    CHECK(message.find("use f16 or bf16") != std::string::npos);
  }
  CHECK_FALSE(autocast_state().enabled);
}

TEST_CASE("16-bit tensors: one rounding of the f32 result, and of its gradient", "[functions]") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor a = parameter({3, 5}, 1, dtype), b = parameter({3, 5}, 2, dtype);
    const auto in_f32 = [](const Tensor& t) {
      const Tensor wide = t.detach().to(DType::f32);
      wide.requires_grad_();
      return wide;
    };
    const auto check = [&](const char* name, const auto& f) {
      INFO(name << " of " << name_of(dtype));
      a.set_grad({});
      b.set_grad({});
      const Tensor wide_a = in_f32(a), wide_b = in_f32(b);
      const Tensor y = f(a, b), wide_y = f(wide_a, wide_b);
      CHECK(y.dtype() == dtype);
      CHECK(values(y) == values(wide_y.to(dtype)));
      const Tensor g = drawn(y.sizes(), 3, dtype);
      y.backward(g);
      wide_y.backward(g.to(DType::f32));
      CHECK(values(a.grad()) == values(wide_a.grad().to(dtype)));
    };
    check("add", [](const Tensor& x, const Tensor& y) { return add(x, y); });
    check("mul", [](const Tensor& x, const Tensor& y) { return mul(x, y); });
    check("relu", [](const Tensor& x, const Tensor&) { return relu(x); });
    check("mul by a number", [](const Tensor& x, const Tensor&) { return mul(x, 0.1); });
    check("gelu", [](const Tensor& x, const Tensor&) { return gelu(x, Gelu::tanh); });
    check("sum", [](const Tensor& x, const Tensor&) { return sum(x, {1}); });
    check("matmul", [](const Tensor& x, const Tensor& y) { return matmul(x, transpose(y, 0, 1)); });
    check("max", [](const Tensor& x, const Tensor&) { return max(x, 1).first; });
    check("var", [](const Tensor& x, const Tensor&) { return var(x, 1); });
    check("cat", [](const Tensor& x, const Tensor& y) { return cat({x, y}, 0); });
    check("mse", [](const Tensor& x, const Tensor& y) { return mse_loss(x, y); });
    check("dropout of nothing", [](const Tensor& x, const Tensor&) { return dropout(x, 0, true); });
  }
}

TEST_CASE("f32, f16 and bf16 together give f32; a number takes the other's dtype", "[functions]") {
  const Tensor half = drawn({3}, 1, DType::bf16), other = drawn({3}, 2, DType::f16);
  const Tensor single = drawn({3}, 3), twice = drawn({3}, 4, DType::f64);
  const Tensor number = test::on_device(scalar(2));
  CHECK(add(half, single).dtype() == DType::f32);
  CHECK(mul(half, other).dtype() == DType::f32);
  CHECK_THROWS_AS(sub(half, twice), UsageError);
  CHECK(div(half, number).dtype() == DType::bf16);
  CHECK(mul(number, half).dtype() == DType::bf16);
  CHECK_THROWS_AS(add(half, test::on_device(arange(3))), UsageError);
  const Tensor w = parameter({3}, 5, DType::bf16);
  sum(mul(w, single)).backward();
  CHECK(w.grad().dtype() == DType::bf16);
  CHECK(values(w.grad()) == values(single.to(DType::bf16)));
}

TEST_CASE("to(dtype): differentiable between floating dtypes, and no further", "[functions]") {
  const Tensor x = parameter({4}, 1);
  const Tensor y = to(x, DType::f16);
  CHECK(to(y, DType::f16).is_same(y));
  mul(y, 3).backward(test::on_device(ones({4}, {DType::f16})));
  CHECK(x.grad().dtype() == DType::f32);
  CHECK(values(x.grad()) == std::vector<float>(4, 3.0F));
  CHECK_FALSE(to(x, DType::i64).requires_grad());
  to(x, DType::bf16).backward(test::on_device(ones({4}, {DType::bf16})));
  CHECK(values(x.grad()) == std::vector<float>(4, 4.0F));
}

TEST_CASE("the profiler counts each call once, with the work of its dtype, and casts as \"to\"",
          "[functions]") {
  constexpr std::int64_t m = 6, k = 4, n = 5;
  const Tensor x = drawn({m, k}, 1), w = parameter({n, k}, 2), b = parameter({n}, 3);
  const Tensor half = drawn({m, n}, 4, DType::bf16), wide = drawn({m, n}, 5),
               turned = drawn({n, m}, 7), y = labels(m), g = drawn({m, n}, 6, DType::bf16);
  const auto rows_of = [](const auto& body) {
    (void)profile::take_rows();
    profile::enable(true);
    body();
    profile::enable(false);
    std::map<std::string, profile::Row> out;
    for (const profile::Row& row : profile::take_rows()) out[row.name] = row;
    return out;
  };
  const auto only = [&](const std::string& name, std::int64_t casts, const auto& body) {
    const auto rows = rows_of(body);
    INFO(name);
    CHECK(rows.size() == (casts > 0 ? 2 : 1));
    CHECK(rows.at(name).calls == 1);
    if (casts > 0) CHECK(rows.at("to").calls == casts);
    return rows.at(name).work;
  };
  // Kernels of a GPU read halves where kernels of the CPU need a cast to f32.
  const std::int64_t widened = test::device().is_cpu() ? 1 : 0;
  Tensor out;
  {
    const Autocast autocast(DType::bf16);
    auto rows = rows_of([&] { out = linear(x, w, b); });
    CHECK(rows.size() == 2);
    CHECK(rows["linear"].calls == 1);
    CHECK(rows["linear"].work.flop == 2 * m * k * n);
    CHECK(rows["linear"].work.bytes == 2 * (m * k + n * k + n + m * n));
    CHECK(rows["to"].calls == 3);
    CHECK(rows["to"].work.flop == 0);
    CHECK(rows["to"].work.bytes == (4 + 2) * (m * k + n * k + n));
    // The guard caches the casts of the parameters.
    CHECK(only("linear", 1, [&] { (void)linear(x, w, b); }).flop == 2 * m * k * n);
    CHECK(only("matmul", 1, [&] { (void)matmul(half, turned); }).flop == 2 * m * n * m);
    CHECK(only("cross_entropy", widened, [&] { (void)cross_entropy(half, y); }).flop > 0);
    CHECK(only("mse_loss", 1, [&] { (void)mse_loss(half, wide); }).flop == 3 * m * n);
    CHECK(only("exp", 1, [&] { (void)exp(half); }).flop == m * n);
    CHECK(only("cat", 1, [&] { (void)cat({half, wide}, 0); }).bytes == 2 * 2 * 4 * m * n);
  }
  auto rows = rows_of([&] { out.backward(g); });
  CHECK(rows["LinearBackward"].calls == 1);
  CHECK(rows["LinearBackward"].work.flop == 2 * m * k * n + m * n);
  CHECK(rows["ToBackward"].calls == 2);
  // Without a guard, half operands are combined with f32 operands, or passed to functions without a
  // half kernel.
  CHECK(only("add", widened, [&] { (void)add(half, wide); }).flop == m * n);
  CHECK(only("mul", 1, [&] { (void)mul(wide, half); }).bytes == 3 * 4 * m * n);
  CHECK(only("max", 2, [&] { (void)max(half); }).flop == m * n);
  CHECK(only("max", 2, [&] { (void)max(half, 1); }).flop == m * n);
  CHECK(only("var", 2, [&] { (void)var(half, 1); }).flop > 0);
  CHECK(only("cross_entropy", 2, [&] { (void)cross_entropy(half, y); }).flop > 0);
}
