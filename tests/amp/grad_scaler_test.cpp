// tests/reference/amp_test.cpp compares with PyTorch; tests/multi/amp_test.cpp uses several ranks.
#include "runtime/amp/grad_scaler.hpp"

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "runtime/autograd/autocast.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/tensor/storage.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/device.hpp"

using namespace ringsmith;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Fixture {
  Tensor w = test::on_device(ones({3}));
  std::unique_ptr<SGD> optimizer;

  Fixture() {
    w.requires_grad_();
    optimizer = std::make_unique<SGD>(std::vector<Tensor>{w}, SGDOptions{.lr = 1});
  }
  void set_gradient(float value) const { w.set_grad(test::on_device(full({3}, value))); }
};

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& e) {
    return e.what();
  }
  return {};
}

bool says(const std::string& message, const std::string& part) {
  INFO(message);
  return message.find(part) != std::string::npos && message.find('\n') == std::string::npos;
}

}  // namespace

TEST_CASE("GradScaler refuses calls in a wrong order, and says what to do") {
  const Fixture f;
  SGD& optimizer = *f.optimizer;
  GradScaler scaler;
  f.set_gradient(1);
  CHECK(says(refusal([&] { scaler.unscale_(optimizer); }), "unscale_() before scale(): call"));
  CHECK(says(refusal([&] { scaler.step(optimizer); }), "step() before scale(): call"));
  CHECK(says(refusal([&] { scaler.update(); }), "update() before scale(): call"));
  (void)scaler.scale(sum(f.w));
  CHECK(says(refusal([&] { scaler.update(); }), "call step(optimizer) first"));
  f.w.set_grad({});
  CHECK(says(refusal([&] { scaler.step(optimizer); }), "has a gradient: call scale(loss)"));
  CHECK(says(refusal([&] { scaler.update(); }), "call step(optimizer) first"));
  f.set_gradient(65536);
  scaler.unscale_(optimizer);
  CHECK(f.w.grad().to_vector<float>() == std::vector<float>(3, 1.0F));
  CHECK(says(refusal([&] { scaler.unscale_(optimizer); }), "call it once, before clipping"));
  CHECK(f.w.grad().to_vector<float>() == std::vector<float>(3, 1.0F));
  CHECK(scaler.step(optimizer));
  CHECK(f.w.to_vector<float>() == std::vector<float>(3, 0.0F));
  CHECK(says(refusal([&] { scaler.unscale_(optimizer); }), "after step() of this optimizer"));
  CHECK(says(refusal([&] { scaler.step(optimizer); }), "call update() at the end of each step"));
  scaler.update();
  f.set_gradient(65536);
  CHECK(scaler.step(optimizer));
}

TEST_CASE("GradScaler refuses options out of range and gradients in 16 bits") {
  const auto with = [](const GradScalerOptions& o) {
    return refusal([&] { const GradScaler scaler(o); });
  };
  CHECK(with({}).empty());
  // Tries scales that are negative or NaN, or whose value in f32 is 0, is infinite, or has an
  // infinite inverse.
  for (const double scale : {0.0, -1.0, 1e-40, 1e-45, 1e40, 1e300, double{kInf}, std::nan("")}) {
    const std::string range = "the scale must be from 1.2e-38 to 3.4e+38 (the range of f32), got ";
    CHECK(says(with({.init_scale = scale}), range));
    GradScaler made;
    CHECK(says(refusal([&] { made.update(scale); }), range));
    CHECK(made.get_scale() == 65536);
  }
  for (const double scale : {1.2e-38, 1.0, 3.4e38}) CHECK(with({.init_scale = scale}).empty());
  CHECK(says(with({.growth_factor = 1}), "growth_factor must be above 1"));
  CHECK(says(with({.backoff_factor = 1}), "backoff_factor must be between 0 and 1"));
  CHECK(says(with({.backoff_factor = -1}), "backoff_factor must be between 0 and 1"));
  CHECK(says(with({.growth_interval = -5}), "growth_interval must be at least 1 step, got -5"));
  GradScaler scaler;
  CHECK(says(refusal([&] { (void)scaler.scale(arange(3)); }), "a loss of floating dtype"));
}

TEST_CASE("GradScaler: a f16 loss is scaled in f32, its gradient comes back") {
  GradScaler scaler;
  const Tensor loss = test::on_device(scalar(60000, DType::f16));
  loss.requires_grad_();
  const Tensor scaled = scaler.scale(loss);
  CHECK(scaled.dtype() == DType::f32);
  CHECK(scaled.item<float>() == 65536.0F * static_cast<float>(f16(60000.0F)));
}

TEST_CASE("GradScaler skips a step with inf or NaN, and halves the scale") {
  for (const float bad : {kInf, -kInf, std::nanf("")}) {
    const Fixture f;
    GradScaler scaler({.init_scale = 8});
    (void)scaler.scale(sum(f.w));
    Tensor g = full({3}, 8);
    g.data<float>()[2] = bad;
    f.w.set_grad(test::on_device(g));
    CHECK_FALSE(scaler.step(*f.optimizer));
    scaler.update();
    CHECK(f.w.to_vector<float>() == std::vector<float>(3, 1.0F));
    CHECK(scaler.get_scale() == 4);
    scaler.update(32);
    CHECK(scaler.get_scale() == 32);
  }
}

TEST_CASE("GradScaler skips a step whose gradients overflow only when they are unscaled") {
  for (const bool by_hand : {false, true}) {
    const Fixture f;
    GradScaler scaler({.init_scale = 0x1p-100});
    (void)scaler.scale(sum(f.w));
    f.set_gradient(0x1p40F);  // unscaled: a gradient of 2^140
    if (by_hand) scaler.unscale_(*f.optimizer);
    CHECK_FALSE(scaler.step(*f.optimizer));
    scaler.update();
    CHECK(f.w.to_vector<float>() == std::vector<float>(3, 1.0F));
    f.set_gradient(0x1p-100F);
    scaler.update(0x1p-100);
    CHECK(scaler.step(*f.optimizer));
    CHECK(f.w.to_vector<float>() == std::vector<float>(3, 0.0F));
  }
}

TEST_CASE("GradScaler: gradients too small for f16 survive, and the scale falls to what fits") {
  // The gradient of 1e-9 h is below the smallest positive f16.
  const auto gradient = [](bool enabled) {
    const Tensor w = test::on_device(full({1, 1}, 1));
    w.requires_grad_();
    SGD optimizer({w}, {.lr = 1});
    GradScaler scaler({.enabled = enabled});
    Tensor loss;
    {
      const Autocast autocast(DType::f16);
      const Tensor h = linear(test::on_device(full({1, 1}, 1)), w);
      loss = mul(sum(h), 1e-9);
    }
    scaler.scale(loss).backward();
    scaler.unscale_(optimizer);
    return w.grad().item<float>();
  };
  CHECK(gradient(false) == 0.0F);
  CHECK(gradient(true) == Approx(1e-9).epsilon(1e-3));

  // The scaled gradient exceeds 65504 until the scale is low enough.
  const Tensor w = test::on_device(full({1, 1}, 1));
  w.requires_grad_();
  SGD optimizer({w}, {.lr = 1e-6});
  GradScaler scaler;
  int skipped = 0;
  for (int step = 0; step < 12; ++step) {
    optimizer.zero_grad();
    Tensor loss;
    {
      const Autocast autocast(DType::f16);
      loss = mul(sum(linear(test::on_device(full({1, 1}, 1)), w)), 1000);
    }
    scaler.scale(loss).backward();
    skipped += scaler.step(optimizer) ? 0 : 1;
    scaler.update();
  }
  CHECK(skipped == 10);  // 65536 / 2^10 * 1000 is the first below 65520
  CHECK(scaler.get_scale() == 64);
}

TEST_CASE("clipping after unscale_ clips the gradients themselves; before it, nothing is left") {
  const auto moved_by = [](bool unscaled) {
    const Fixture f;
    GradScaler scaler({.init_scale = 1024});
    scaler.scale(mul(sum(f.w), 0.1)).backward();  // gradients of 0.1, with norm 0.17
    if (unscaled) scaler.unscale_(*f.optimizer);
    (void)clip_grad_norm_(f.optimizer->params(), 1.0);
    scaler.step(*f.optimizer);
    return 1 - f.w.to_vector<float>()[0];
  };
  CHECK(moved_by(true) == Approx(0.1).epsilon(1e-5));
  CHECK(moved_by(false) < 0.001);
}

TEST_CASE("under autocast activations take half the memory, the state of training all of its own") {
  const auto measure = [](bool enabled) {
    constexpr std::int64_t kWidth = 64, kRows = 2048;
    std::vector<Tensor> weights;
    Generator g(1);
    for (int i = 0; i < 6; ++i) {
      weights.push_back(mul(randn({kWidth, kWidth}, g), 0.1));
      weights.back().requires_grad_();
    }
    AdamW optimizer(weights, {});
    const Tensor x = randn({kRows, kWidth}, g);
    const std::size_t before = host_allocator::stats().current.value;
    Tensor y = x;
    {
      const Autocast autocast(DType::bf16, enabled);
      for (const Tensor& w : weights) y = gelu(linear(y, w));
    }
    const std::size_t activations = host_allocator::stats().current.value - before;
    sum(y).backward();
    optimizer.step();
    for (const Tensor& w : weights) {
      REQUIRE(w.dtype() == DType::f32);
      REQUIRE(w.grad().dtype() == DType::f32);
    }
    for (const auto& [name, t] : optimizer.state_dict())
      REQUIRE((name.find("exp_avg") == std::string::npos || t.dtype() == DType::f32));
    return static_cast<double>(activations);
  };
  const double plain = measure(false), mixed = measure(true);
  CHECK(mixed / plain > 0.45);
  CHECK(mixed / plain < 0.65);  // one half, plus the 16-bit input and weights
}

TEST_CASE("GradScaler that is not enabled is a loop without one") {
  const Fixture f;
  GradScaler scaler({.enabled = false});
  const Tensor loss = sum(f.w);
  CHECK(scaler.scale(loss).is_same(loss));
  f.set_gradient(kInf);
  scaler.unscale_(*f.optimizer);
  CHECK(scaler.step(*f.optimizer));
  scaler.update();
  CHECK(scaler.get_scale() == 1);
  CHECK(scaler.state_dict().empty());
}

TEST_CASE("GradScaler's state goes into another, and a wrong one changes nothing") {
  const Fixture f;
  GradScaler first({.init_scale = 512, .growth_interval = 4}), second;
  (void)first.scale(sum(f.w));
  for (int i = 0; i < 6; ++i) {
    f.set_gradient(1);
    first.step(*f.optimizer);
    first.update();
  }
  const StateDict state = first.state_dict();
  CHECK(state.size() == 5);
  second.load_state_dict(state);
  CHECK(second.get_scale() == 1024);
  for (const auto& [name, value] : second.state_dict())
    CHECK(value.to(DType::f64).item<double>() == state.at(name).to(DType::f64).item<double>());

  const auto broken = [&](const std::function<void(StateDict&)>& change) {
    StateDict wrong = state;
    change(wrong);
    const std::string message = refusal([&] { second.load_state_dict(wrong); });
    CHECK(second.get_scale() == 1024);
    return message;
  };
  CHECK(says(broken([](StateDict& s) { s.clear(); }), "of a scaler that was not enabled"));
  CHECK(says(broken([](StateDict& s) { s.erase("scale"); }), "'scale' is missing"));
  CHECK(says(broken([](StateDict& s) { s["exp_avg.0"] = ones({3}); }),
             "'exp_avg.0' is not an entry"));
  CHECK(says(broken([](StateDict& s) { s["scale"] = ones({2}); }), "'scale' must be one f32"));
  CHECK(says(broken([](StateDict& s) { s["scale"] = scalar(1, DType::i64); }), "got i64"));
  CHECK(says(broken([](StateDict& s) { s["scale"] = scalar(-1); }), "the scale must be from"));
  CHECK(says(broken([](StateDict& s) { s["_growth_tracker"] = scalar(-1, DType::i64); }),
             "'_growth_tracker' is negative"));
}

TEST_CASE("GradScaler: a scale that has fallen to 0, or whose inverse overflows, is an error") {
  const Fixture f;
  GradScaler scaler({.init_scale = 2e-38});
  (void)scaler.scale(sum(f.w));
  f.set_gradient(kInf);
  scaler.step(*f.optimizer);
  CHECK_THROWS_WITH(scaler.update(), ContainsSubstring("the scale has fallen to 0"));
}
