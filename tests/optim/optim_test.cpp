#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "kernels/mode.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/optim/optimizer.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/device.hpp"

using namespace ringsmith;
using Values = std::vector<float>;

namespace {

Tensor tensor(const Values& values) {
  Tensor t = Tensor::empty({std::ssize(values)});
  std::copy(values.begin(), values.end(), t.data<float>());
  return test::on_device(t);
}

Tensor parameter(const Values& values) {
  Tensor t = tensor(values);
  t.requires_grad_();
  return t;
}

struct Oracle {
  Oracle() { kernels::set_mode(kernels::Mode::oracle); }
  ~Oracle() { kernels::set_mode(kernels::Mode::fast); }
  Oracle(const Oracle&) = delete;
  Oracle& operator=(const Oracle&) = delete;
};

// Trains parameters of 7 and 1 elements. The gradients of step t are drawn from generator 40 + t.
template <class Opt, class Options>
std::vector<Values> trajectory(const Options& options, int steps) {
  std::vector<Values> out;
  Values a(7);
  Values b(1);
  Generator g(3);
  fill_normal(a, 0, 1, g);
  fill_normal(b, 0, 1, g);
  const std::vector<Tensor> params{parameter(a), parameter(b)};
  Opt optimizer(params, options);
  for (int t = 0; t < steps; ++t) {
    Generator draw(40 + static_cast<std::uint64_t>(t));
    for (const Tensor& p : params) {
      Values grad(static_cast<std::size_t>(p.numel()));
      fill_normal(grad, 0, 1, draw);
      p.set_grad(tensor(grad));
    }
    optimizer.step();
    out.push_back(params[0].to_vector<float>());
    out.push_back(params[1].to_vector<float>());
  }
  return out;
}

}  // namespace

TEST_CASE("five steps of each optimizer end at PyTorch's bits") {
  const Oracle oracle;
  const auto last = [](std::vector<Values> t) {
    Values end = t[t.size() - 2];
    end.push_back(t.back().front());
    return end;
  };
  CHECK(last(trajectory<SGD>(SGDOptions{.lr = 0.1}, 5)) ==
        Values{0x1.5016e2p-1F, 0x1.e232d2p-2F, -0x1.81e1b8p-3F, -0x1.870974p-1F, 0x1.eb127ep-4F,
               -0x1.5fc6bep+0F, 0x1.198decp-4F, 0x1.ce03ap-1F});
  CHECK(last(trajectory<SGD>(SGDOptions{0.1, 0.9, 0.25, 0.01, false}, 5)) ==
        Values{0x1.d8725p-3F, 0x1.516d5cp-1F, -0x1.099e08p-1F, -0x1.6d543p-1F, 0x1.2580fp-1F,
               -0x1.c033b8p+0F, -0x1.566cdep-1F, 0x1.874276p-1F});
  CHECK(last(trajectory<SGD>(SGDOptions{0.1, 0.9, 0, 0.01, true}, 5)) ==
        Values{0x1.566ef4p-4F, 0x1.01c06cp+0F, -0x1.9d31dep-1F, -0x1.e21d38p-1F, 0x1.64813ap-1F,
               -0x1.b5d654p+0F, -0x1.facb5cp-1F, 0x1.55b2dp-1F});
  CHECK(last(trajectory<Adam>(AdamOptions{.lr = 0.1, .weight_decay = 0.1}, 5)) ==
        Values{0x1.b1abbap-2F, 0x1.2c1f9ap-1F, -0x1.59e25cp-2F, -0x1.11b26p-1F, 0x1.738ac6p-2F,
               -0x1.9937eep+0F, -0x1.deb26ap-5F, 0x1.700e3ap-1F});
  CHECK(last(trajectory<Adam>(AdamOptions{.lr = 0.1, .beta1 = 0.8, .beta2 = 0.5, .amsgrad = true},
                              5)) == Values{0x1.e18686p-2F, 0x1.18d55p-1F, -0x1.28c694p-2F,
                                            -0x1.2342acp-1F, 0x1.554704p-2F, -0x1.a03a62p+0F,
                                            -0x1.c802e8p-9F, 0x1.97d652p-1F});
  CHECK(last(trajectory<AdamW>(AdamOptions{.lr = 0.1, .weight_decay = 0.1}, 5)) ==
        Values{0x1.a0ec28p-2F, 0x1.27e5e2p-1F, -0x1.578acep-2F, -0x1.17d134p-1F, 0x1.6c4398p-2F,
               -0x1.95b7eep+0F, -0x1.065778p-4F, 0x1.73eda4p-1F});
}

TEST_CASE("the fast kernels follow the oracle's trajectory") {
  const auto close = [](const auto& run) {
    const std::vector<Values> fast = run();
    const Oracle oracle;
    const std::vector<Values> slow = run();
    for (std::size_t i = 0; i < slow.size(); ++i)
      for (std::size_t k = 0; k < slow[i].size(); ++k)
        CHECK(std::abs(fast[i][k] - slow[i][k]) <= 2e-6F * (1 + std::abs(slow[i][k])));
  };
  close([] { return trajectory<SGD>(SGDOptions{0.1, 0.9, 0, 0.01, true}, 20); });
  close([] { return trajectory<Adam>(AdamOptions{.lr = 0.1, .weight_decay = 0.1}, 20); });
  close([] { return trajectory<AdamW>(AdamOptions{.lr = 0.1, .amsgrad = true}, 20); });
}

TEST_CASE("a parameter without gradient keeps its value and its step count") {
  const std::vector<Tensor> params{parameter({1, 2}), parameter({5})};
  Adam optimizer(params, {.lr = 0.5});
  params[0].set_grad(tensor({1, 1}));
  optimizer.step();
  CHECK(params[1].item<float>() == 5);
  CHECK(optimizer.state_dict().at("state.0.step").item<std::int64_t>() == 1);
  CHECK(optimizer.state_dict().count("state.1.step") == 0);
  CHECK(optimizer.state_dict().count("state.1.exp_avg") == 0);
  // Bias correction uses the parameter's own step count, so its first step moves it by lr.
  params[1].set_grad(tensor({3}));
  optimizer.step();
  CHECK(params[1].item<float>() == Approx(4.5));
}

TEST_CASE("zero_grad drops gradients, or zeroes them where they are") {
  const std::vector<Tensor> params{parameter({1, 2}), parameter({3})};
  SGD optimizer(params, {.lr = 0.1});
  const Tensor grad = tensor({7, 8});
  params[0].set_grad(grad);
  optimizer.zero_grad(/*set_to_none=*/false);
  CHECK(params[0].grad().kernel_data<float>() == grad.kernel_data<float>());
  CHECK(grad.to_vector<float>() == Values{0, 0});
  CHECK_FALSE(params[1].grad().defined());
  optimizer.zero_grad();
  CHECK_FALSE(params[0].grad().defined());
}

TEST_CASE("an optimizer restored from its state goes on with the same bits") {
  const auto gradients = [](const std::vector<Tensor>& params, std::uint64_t seed) {
    Generator g(seed);
    for (const Tensor& p : params) {
      Values grad(static_cast<std::size_t>(p.numel()));
      fill_normal(grad, 0, 1, g);
      p.set_grad(tensor(grad));
    }
  };
  const auto check = [&](auto make) {
    const std::vector<Tensor> a{parameter({1, -2, 3}), parameter({4})};
    auto original = make(a);
    for (std::uint64_t t = 0; t < 3; ++t) gradients(a, t), original->step();
    const std::vector<Tensor> b{parameter(a[0].to_vector<float>()),
                                parameter(a[1].to_vector<float>())};
    auto restored = make(b);
    restored->load_state_dict(original->state_dict());
    for (std::uint64_t t = 3; t < 6; ++t) {
      gradients(a, t), original->step();
      gradients(b, t), restored->step();
    }
    CHECK(a[0].to_vector<float>() == b[0].to_vector<float>());
    CHECK(a[1].to_vector<float>() == b[1].to_vector<float>());
  };
  check([](const std::vector<Tensor>& p) {
    return std::make_unique<SGD>(p, SGDOptions{0.1, 0.9, 0.5, 0, false});
  });
  check([](const std::vector<Tensor>& p) {
    return std::make_unique<AdamW>(p, AdamOptions{.lr = 0.1, .weight_decay = 0.1, .amsgrad = true});
  });
}

TEST_CASE("the state has PyTorch's entries") {
  const auto keys = [](const Optimizer& optimizer) {
    std::string out;
    for (const auto& [key, value] : optimizer.state_dict()) out += key + " ";
    return out;
  };
  // As in torch.optim.*.state_dict() after a step in which only parameter 1 had a gradient, without
  // flags that do not exist here (maximize, foreach, capturable).
  const auto stepped = [&](auto optimizer, const std::vector<Tensor>& p) {
    p[1].set_grad(tensor({7}));
    optimizer->step();
    return keys(*optimizer);
  };
  const std::vector<Tensor> p{parameter({1, 2}), parameter({3})};
  const std::string adam =
      "param_groups.0.amsgrad param_groups.0.betas param_groups.0.eps param_groups.0.lr "
      "param_groups.0.params param_groups.0.weight_decay ";
  const std::string sgd =
      "param_groups.0.dampening param_groups.0.lr param_groups.0.momentum "
      "param_groups.0.nesterov param_groups.0.params param_groups.0.weight_decay ";
  CHECK(keys(Adam(p, {})) == adam);
  CHECK(stepped(std::make_unique<AdamW>(p, AdamOptions{}), p) ==
        adam + "state.1.exp_avg state.1.exp_avg_sq state.1.step ");
  CHECK(stepped(std::make_unique<Adam>(p, AdamOptions{.amsgrad = true}), p) ==
        adam + "state.1.exp_avg state.1.exp_avg_sq state.1.max_exp_avg_sq state.1.step ");
  CHECK(stepped(std::make_unique<SGD>(p, SGDOptions{.momentum = 0.9}), p) ==
        sgd + "state.1.momentum_buffer ");
  CHECK(stepped(std::make_unique<SGD>(p, SGDOptions{}), p) == sgd);
  const StateDict state = AdamW(p, {.lr = 0.25, .beta2 = 0.5}).state_dict();
  CHECK(state.at("param_groups.0.betas").to_vector<double>() == std::vector<double>{0.9, 0.5});
  CHECK(state.at("param_groups.0.lr").item<double>() == 0.25);
  CHECK(state.at("param_groups.0.params").to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{0, 1});
}

TEST_CASE("loading takes over the hyperparameters, and refuses the first entry that does not fit") {
  const std::vector<Tensor> p{parameter({1, 2})};
  Adam adam(p, {.lr = 0.1});
  p[0].set_grad(tensor({3, 4}));
  adam.step();
  const StateDict before = Adam(p, {.lr = 0.5, .beta1 = 0.75, .amsgrad = true}).state_dict();
  const auto refused = [&](StateDict state, const std::string& key, const Tensor& value,
                           const std::string& words) {
    if (value.defined())
      state[key] = value;
    else
      state.erase(key);
    const StateDict mine = adam.state_dict();
    CHECK_THROWS_WITH(adam.load_state_dict(state), ContainsSubstring(words));
    for (const auto& [name, tensor] : adam.state_dict())  // a refusal changes nothing
      CHECK(tensor.to(DType::f64).to_vector<double>() ==
            mine.at(name).to(DType::f64).to_vector<double>());
  };
  const StateDict good = adam.state_dict();
  refused(good, "state.0.exp_avg", tensor({1, 2, 3}),
          "'state.0.exp_avg' is [3], its parameter is [2]");
  refused(good, "state.0.momentum_buffer", tensor({1, 2}), "unknown to this optimizer");
  refused(good, "state.1.exp_avg", tensor({1, 2}), "'state.1.exp_avg' is unknown");
  refused(good, "state.0.step", {}, "without a step");
  refused(good, "param_groups.0.params", {}, "'param_groups.0.params' is missing");
  refused(good, "param_groups.0.params", arange(3), "has 3 parameters, this optimizer has 1");
  refused(good, "param_groups.0.betas", scalar(0.5, DType::f64), "has 1 values");
  refused(good, "param_groups.0.eps", scalar(-1, DType::f64), "eps must not be negative");
  refused(good, "param_groups.0.lr", scalar(-1, DType::f64), "learning rate");
  refused(good, "param_groups.0.eps", scalar(std::numeric_limits<double>::infinity(), DType::f64),
          "eps must be a finite number, got inf");
  refused(SGD(p, {}).state_dict(), "param_groups.0.foreach", scalar(0), "of another kind");

  adam.load_state_dict(before);
  CHECK(adam.lr() == 0.5);
  const StateDict after = adam.state_dict();
  CHECK(after.at("param_groups.0.betas").to_vector<double>() == std::vector<double>{0.75, 0.999});
  CHECK(after.at("param_groups.0.amsgrad").item<double>() == 1);
  CHECK(after.count("state.0.exp_avg") == 0);
}

TEST_CASE("a state that no training leaves behind is refused by the entry's name") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const std::vector<Tensor> p{parameter({1, 2}), parameter({3})};
  Adam adam(p, {.amsgrad = true});
  SGD sgd(p, {.momentum = 0.9});
  for (const Tensor& each : p) each.set_grad(test::on_device(ones(each.sizes())));
  adam.step();
  sgd.step();
  const auto said = [&](Optimizer& optimizer, const std::string& key, const Tensor& value) {
    StateDict state = optimizer.state_dict();
    REQUIRE(state.count(key) == 1);
    state[key] = value;
    try {
      optimizer.load_state_dict(state);
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const auto number = [](double x, DType dtype) { return scalar(x, dtype); };
  for (const double bad : {-1.0, 0.5, 1e30, kNan, kInf, -kInf})
    for (const DType dtype : {DType::f32, DType::f64})
      CHECK_THAT(said(adam, "state.1.step", number(bad, dtype)),
                 ContainsSubstring("optimizer state: 'state.1.step' is "));
  CHECK_THAT(said(adam, "state.0.step", number(-1, DType::i64)),
             ContainsSubstring("'state.0.step' is -1, which training never produces"));
  for (const char* name : {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"})
    for (const double bad : {kNan, kInf, -kInf}) {
      const std::string key = std::string("state.0.") + name;
      CHECK_THAT(said(adam, key, tensor({1, static_cast<float>(bad)})),
                 ContainsSubstring("'" + key + "' holds NaN or an infinity"));
    }
  CHECK_THAT(said(sgd, "state.1.momentum_buffer", tensor({static_cast<float>(kNan)})),
             ContainsSubstring("'state.1.momentum_buffer' holds NaN or an infinity"));
  for (const char* key : {"state.0.exp_avg_sq", "state.0.max_exp_avg_sq"})
    CHECK_THAT(said(adam, key, tensor({1, -0.5F})),
               ContainsSubstring("'" + std::string(key) + "' holds -0.5"));
  // These values can occur in training.
  CHECK(said(adam, "state.0.exp_avg", tensor({-1, 3e38F})).empty());
  CHECK(said(adam, "state.0.exp_avg_sq", tensor({-0.0F, 0})).empty());
  CHECK(said(adam, "state.0.step", number(7, DType::f32)).empty());
}

TEST_CASE("optimizer arguments that PyTorch refuses are refused") {
  const std::vector<Tensor> p{parameter({1})};
  CHECK_THROWS_WITH(SGD(p, {.lr = 0.1, .nesterov = true}), ContainsSubstring("Nesterov"));
  CHECK_THROWS_AS(SGD(p, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}), UsageError);
  CHECK_THROWS_AS(SGD(p, {.lr = -1}), UsageError);
  CHECK_THROWS_AS(SGD(p, {.lr = std::numeric_limits<double>::quiet_NaN()}), UsageError);
  CHECK_THROWS_AS(SGD(p, {.momentum = -0.1}), UsageError);
  CHECK_THROWS_AS(SGD(p, {.weight_decay = -0.1}), UsageError);
  CHECK_THROWS_AS(Adam(p, {.beta1 = 1.0}), UsageError);
  CHECK_THROWS_AS(Adam(p, {.beta2 = -0.1}), UsageError);
  CHECK_THROWS_AS(AdamW(p, {.eps = -1}), UsageError);
  CHECK_THROWS_WITH(SGD({}, {}), ContainsSubstring("empty parameter list"));
  CHECK_THROWS_WITH(SGD({p[0], p[0]}, {}), ContainsSubstring("same tensor as parameter 0"));
  CHECK_THROWS_AS(SGD({Tensor::empty({2}, {DType::i64})}, {}), UsageError);
}

TEST_CASE("clipping scales to the norm, always multiplies, and never hides a NaN") {
  const std::vector<Tensor> params{parameter({0, 0}), parameter({0}), parameter({1})};
  params[0].set_grad(tensor({3, 4}));
  params[1].set_grad(tensor({12}));
  CHECK(clip_grad_norm_(params, 6.5).item<float>() == 13.0F);
  CHECK(params[0].grad().to_vector<float>()[1] == Approx(2).epsilon(1e-6));
  CHECK(clip_grad_norm_(params, 100).item<float>() == Approx(6.5));
  CHECK(params[1].grad().item<float>() == Approx(6).epsilon(1e-6));
  CHECK_FALSE(params[2].grad().defined());

  const float nan = std::numeric_limits<float>::quiet_NaN();
  params[1].set_grad(tensor({nan}));
  CHECK_THROWS_WITH(clip_grad_norm_(params, 1, true), ContainsSubstring("nan"));
  CHECK(params[0].grad().to_vector<float>()[0] == Approx(1.5));  // unchanged by the refusal
  CHECK(std::isnan(clip_grad_norm_(params, 1).item<float>()));
  CHECK(std::isnan(params[0].grad().to_vector<float>()[0]));
}

TEST_CASE("the norm of large and of small gradients is the same however many elements there are") {
  for (const bool oracle : {false, true})
    for (const std::int64_t n : {1, 31, 32, 1023, 1024, 1025, 5000})
      for (const float value : {1e20F, -1e20F, 1e-25F, 3e38F}) {
        INFO(n << " times " << value);
        std::optional<Oracle> mode;
        if (oracle) mode.emplace();
        const std::vector<Tensor> params{parameter(Values(static_cast<std::size_t>(n), 0))};
        params[0].set_grad(test::on_device(full({n}, value)));
        const double want = std::abs(double{value}) * std::sqrt(static_cast<double>(n));
        const double got = clip_grad_norm_(params, 1).item<float>();
        if (want < std::numeric_limits<float>::max())
          CHECK(got == Approx(want).epsilon(1e-6));
        else
          CHECK(std::isinf(got));
      }
}

TEST_CASE("clip_grad_norm_ names the gradient that is not finite, and what max_norm is") {
  const std::vector<Tensor> params{parameter({0, 0}), parameter({0}), parameter({1, 2, 3})};
  params[0].set_grad(tensor({3, 4}));
  params[2].set_grad(tensor({1, std::numeric_limits<float>::infinity(), 1}));
  CHECK_THROWS_WITH(clip_grad_norm_(params, 1, true),
                    ContainsSubstring("the norm of the gradients is inf: the gradient of parameter "
                                      "2, f32[3], holds NaN or an infinity"));
  params[2].set_grad(tensor({3e38F, 3e38F, 3e38F}));
  CHECK_THROWS_WITH(clip_grad_norm_(params, 1, true),
                    ContainsSubstring("is inf, beyond f32, though each gradient is finite"));
  CHECK_THROWS_WITH(clip_grad_norm_(params, std::numeric_limits<double>::quiet_NaN()),
                    ContainsSubstring("max_norm must be 0 or more, got nan"));
  CHECK_THROWS_WITH(clip_grad_norm_(params, -2), ContainsSubstring("0 or more, got -2"));
}

TEST_CASE("schedules take their values at the corners and between") {
  CHECK(constant_lr(0.3)(1000) == 0.3);
  const LrSchedule warm = warmup_lr(0.8, 4);
  CHECK(warm(0) == 0.2);
  CHECK(warm(3) == 0.8);
  CHECK(warm(400) == 0.8);
  CHECK(warmup_lr(0.8, 0)(0) == 0.8);
  const LrSchedule cosine = cosine_lr(1.0, 10, 110, 0.1);
  CHECK(cosine(0) == 0.1);
  CHECK(cosine(9) == 1.0);
  CHECK(cosine(10) == 1.0);
  CHECK(cosine(60) == Approx(0.55));
  CHECK(cosine(35) == Approx(0.1 + 0.9 * (1 + std::sqrt(0.5)) / 2));
  CHECK(cosine(110) == Approx(0.1));
  CHECK(cosine(5000) == cosine(110));
  const LrSchedule steps = step_lr(0.1, 30, 0.1);
  CHECK(steps(29) == 0.1);
  CHECK(steps(30) == Approx(0.01));
  CHECK(steps(89) == Approx(0.001));
  CHECK_THROWS_WITH(cosine_lr(1, 10, 10), ContainsSubstring("warm-up of 10"));
  CHECK_THROWS_AS(step_lr(1, 0), UsageError);
  CHECK_THROWS_AS(constant_lr(-1), UsageError);
  CHECK_THROWS_AS(warmup_lr(1, -1), UsageError);
}
