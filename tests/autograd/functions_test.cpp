// Tests values of small cases, and slopes in f64 (gradcheck). Inputs are strided and broadcast too.
#include "runtime/autograd/functions.hpp"

#include <cmath>
#include <functional>
#include <limits>

#include "runtime/autograd/engine.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/tensor/tensor.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/gradcheck.hpp"

using namespace ringsmith;
using ringsmith::test::Function;
using ringsmith::test::gradcheck;
using ringsmith::test::on_device;
using ringsmith::test::spread_values;

namespace {

std::string check1(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) {
  return gradcheck([&](const std::vector<Tensor>& in) { return f(in[0]); }, {x});
}

Tensor positive(const Shape& shape) {
  const Tensor t = spread_values(shape, 5);
  for (double& v : t.span<double>()) v = std::abs(v) + 0.3;
  return t;
}

std::vector<float> values(const Tensor& t) { return t.to_vector<float>(); }

}  // namespace

TEST_CASE("slopes: functions of one tensor", "[functions]") {
  const Shape s{3, 4};
  REQUIRE(check1(spread_values(s, 1), [](const Tensor& x) { return neg(x); }).empty());
  REQUIRE(check1(spread_values(s, 1), [](const Tensor& x) { return exp(x); }).empty());
  REQUIRE(check1(positive(s), [](const Tensor& x) { return log(x); }).empty());
  REQUIRE(check1(positive(s), [](const Tensor& x) { return sqrt(x); }).empty());
  REQUIRE(check1(spread_values(s, 1), [](const Tensor& x) { return tanh(x); }).empty());
  REQUIRE(check1(spread_values(s, 1), [](const Tensor& x) { return sigmoid(x); }).empty());
  REQUIRE(check1(spread_values(s, 1), [](const Tensor& x) { return relu(x); }).empty());
  REQUIRE(check1(spread_values(s, 1), [](const Tensor& x) { return gelu(x); }).empty());
  REQUIRE(check1(spread_values(s, 1), [](const Tensor& x) { return gelu(x, Gelu::tanh); }).empty());
  for (const double p : {0.0, 1.0, 2.0, 3.0, 0.5, -1.0, -2.0, 1.7})
    REQUIRE(check1(positive(s), [p](const Tensor& x) { return pow(x, p); }).empty());
  REQUIRE(check1(spread_values(s, 1), [](const Tensor& x) { return x * 2.5 + 1.5; }).empty());
  const Tensor mask = from_vector<bool>({true, false, false, true}, {4});
  REQUIRE(check1(spread_values(s, 1), [&](const Tensor& x) {
            return masked_fill(x, mask.to(x.device()), 7);
          }).empty());
  if (test::device().is_cpu())  // devices draw masks that differ from the CPU's
    REQUIRE(check1(spread_values(s, 1), [](const Tensor& x) {
              manual_seed(3);  // the same mask in every evaluation
              return dropout(x, 0.4, true);
            }).empty());
}

TEST_CASE("a cat, a window or a stride that is too large for its numbers is refused",
          "[functions]") {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  const Tensor wide = ones({1}).expand({kHuge});
  CHECK_THROWS_WITH(cat({wide, wide, wide}, 0), ContainsSubstring("cat: too large"));
  const Tensor image = ones({1, 1, 4, 4}), kernel = ones({1, 1, 2, 2});
  const Pair huge{kHuge, kHuge}, one{1, 1}, none{0, 0}, two{2, 2};
  CHECK_THROWS_WITH(conv2d(image, kernel, {}, huge, none, one, 1), ContainsSubstring("stride"));
  CHECK_THROWS_WITH(conv2d(image, kernel, {}, one, huge, one, 1), ContainsSubstring("padding"));
  CHECK_THROWS_WITH(conv2d(image, kernel, {}, one, none, huge, 1), ContainsSubstring("dilation"));
  CHECK_THROWS_WITH(max_pool2d(image, huge, two), ContainsSubstring("window"));
  CHECK_THROWS_WITH(max_pool2d(image, two, huge), ContainsSubstring("stride"));
  CHECK_THROWS_WITH(avg_pool2d(image, two, two, huge), ContainsSubstring("padding"));
}

TEST_CASE("slopes at 0, -0, infinities and NaN are PyTorch's", "[functions]") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::vector<float> at{0.0F, -0.0F, inf, -inf, nan, 2.0F};
  const auto n = static_cast<std::int64_t>(at.size());
  const auto slope = [&](const std::function<Tensor(const Tensor&)>& f, double seed = 1) {
    const Tensor x = from_vector(at).to(test::device()).requires_grad_();
    f(x).backward(full({n}, seed, x.options()));
    return x.grad().to_vector<float>();
  };
  // From PyTorch's derivatives.yaml, and the special cases of its pow for these exponents.
  const struct {
    double exponent;
    std::vector<float> slopes;
  } powers[] = {{0, {0, 0, 0, 0, 0, 0}},
                {1, {1, 1, 1, 1, 1, 1}},
                {2, {0, -0.0F, inf, -inf, nan, 4}},
                {3, {0, 0, inf, inf, nan, 12}},
                {0.5, {inf, -inf, 0, nan, nan, 0.35355338F}},
                {-1, {-inf, -inf, -0.0F, -0.0F, nan, -0.25F}}};
  const auto same = [](const std::vector<float>& got, const std::vector<float>& want) {
    for (std::size_t i = 0; i < want.size(); ++i) {
      INFO("at place " << i << ": " << got[i] << ", not " << want[i]);
      CHECK(((std::isnan(got[i]) && std::isnan(want[i])) || got[i] == want[i] ||
             std::abs(got[i] - want[i]) < 1e-6F));
    }
  };
  for (const auto& [exponent, slopes] : powers) {
    CAPTURE(exponent);
    same(slope([e = exponent](const Tensor& x) { return pow(x, e); }), slopes);
  }
  for (const double seed : {static_cast<double>(inf), static_cast<double>(nan)})
    same(slope([](const Tensor& x) { return pow(x, 0); }, seed), {0, 0, 0, 0, 0, 0});
  same(slope([](const Tensor& x) { return sqrt(x); }), {inf, -inf, 0, nan, nan, 0.35355338F});
  same(slope([](const Tensor& x) { return log(x); }), {inf, -inf, 0, -0.0F, nan, 0.5F});
  same(slope([](const Tensor& x) { return exp(x); }), {1, 1, inf, 0, nan, 7.389056F});
  same(slope([](const Tensor& x) { return relu(x); }), {0, 0, 1, 0, 1, 1});
  same(slope([](const Tensor& x) { return tanh(x); }), {1, 1, 0, 0, nan, 0.070650816F});
  same(slope([](const Tensor& x) { return sigmoid(x); }), {0.25F, 0.25F, 0, 0, nan, 0.10499357F});
}

TEST_CASE("slopes: functions of two tensors, broadcast both ways", "[functions]") {
  const std::vector<std::pair<Shape, Shape>> shapes{{{2, 3}, {2, 3}},    {{2, 3}, {3}},
                                                    {{2, 1, 3}, {4, 1}}, {{2, 3}, {}},
                                                    {{}, {2}},           {{1, 3}, {2, 1}}};
  for (const auto& [sa, sb] : shapes) {
    using Two = Tensor (*)(const Tensor&, const Tensor&);
    for (const Two op : {Two(add), Two(sub), Two(mul), Two(div)}) {
      const std::string fault =
          gradcheck([op](const std::vector<Tensor>& in) { return op(in[0], in[1]); },
                    {spread_values(sa, 2), positive(sb)});
      REQUIRE(fault == "");
    }
  }
}

TEST_CASE("slopes: an operand used twice, and strided operands", "[functions]") {
  REQUIRE(check1(spread_values({3, 3}, 1),
                 [](const Tensor& x) { return transpose(x, 0, 1) * x + x / (x * x + 1.0); }) == "");
  REQUIRE(check1(spread_values({4, 6}, 1), [](const Tensor& x) {
            return tanh(slice(x, 1, 0, 6, 2)) *
                   exp(transpose(slice(x, 0, 1, 4), 0, 1).defined() ? slice(x, 1, 1, 6, 2) : x);
          }) == "");
  REQUIRE(check1(spread_values({2, 1, 3}, 1), [](const Tensor& x) {
            return gelu(expand(x, {2, 4, 3})) * sigmoid(permute(expand(x, {2, 4, 3}), {0, 1, 2}));
          }) == "");
}

TEST_CASE("slopes: reductions over every choice of dimensions", "[functions]") {
  const std::vector<std::vector<int>> choices{{}, {0}, {1}, {-1}, {0, 2}, {1, 2}, {0, 1, 2}};
  for (const std::vector<int>& dims : choices)
    for (const bool keep : {false, true}) {
      REQUIRE(check1(spread_values({2, 3, 4}, 1),
                     [&](const Tensor& x) { return sum(x, dims, keep); }) == "");
      REQUIRE(check1(spread_values({2, 3, 4}, 1), [&](const Tensor& x) {
                return mean(x, dims, keep) * sum(permute(x, {2, 0, 1}));
              }) == "");
    }
  for (const int dim : {0, 1, -1}) {
    REQUIRE(check1(spread_values({3, 4, 2}, 1),
                   [&](const Tensor& x) { return var(x, dim, dim != 1, dim == 0); }) == "");
    REQUIRE(check1(spread_values({3, 4, 2}, 1),
                   [&](const Tensor& x) { return max(x, dim, dim == 0).first; }) == "");
    REQUIRE(check1(spread_values({3, 4, 2}, 1),
                   [&](const Tensor& x) { return max(transpose(x, 0, 1), dim).first; }) == "");
  }
  REQUIRE(check1(spread_values({3, 4}, 1), [](const Tensor& x) { return max(x); }) == "");
}

TEST_CASE("slopes: functions that move the view", "[functions]") {
  const Shape s{2, 3, 4};
  const auto weigh = [](const Tensor& y) { return y * y; };
  REQUIRE(check1(spread_values(s, 1), [&](const Tensor& x) {
            return weigh(view(x, {4, 6}));
          }) == "");
  REQUIRE(check1(spread_values(s, 1), [&](const Tensor& x) {
            return weigh(reshape(transpose(x, 0, 1), {6, -1}));
          }) == "");
  REQUIRE(check1(spread_values(s, 1), [&](const Tensor& x) {
            return weigh(permute(x, {2, 0, -2}));
          }) == "");
  REQUIRE(check1(spread_values(s, 1),
                 [&](const Tensor& x) { return weigh(slice(x, -1, 1, 4, 2)); }) == "");
  REQUIRE(check1(spread_values(s, 1), [&](const Tensor& x) { return weigh(select(x, 1, -1)); }) ==
          "");
  REQUIRE(check1(spread_values(s, 1), [&](const Tensor& x) {
            return weigh(squeeze(unsqueeze(clone(contiguous(transpose(x, 0, 2))), 1), 1));
          }) == "");
  REQUIRE(check1(spread_values({3, 1}, 1), [&](const Tensor& x) {
            return weigh(expand(x, {2, -1, 4}));
          }) == "");
  const std::string fault = gradcheck(
      [&](const std::vector<Tensor>& in) {
        return weigh(cat({in[0], in[1], in[0]}, 1));
      },
      {spread_values({2, 3}, 1), spread_values({2, 1}, 2)});
  REQUIRE(fault == "");
}

TEST_CASE("slopes: mean squared error, by each reduction and for both arguments", "[functions]") {
  for (const Reduction r : {Reduction::mean, Reduction::sum, Reduction::none}) {
    const std::string fault = gradcheck(
        [r](const std::vector<Tensor>& in) { return mse_loss(in[0], transpose(in[1], 0, 1), r); },
        {spread_values({2, 5}, 1), spread_values({5, 2}, 2)});
    REQUIRE(fault == "");
  }
}

TEST_CASE("a tied maximum shares its gradient, and the first index is reported", "[functions]") {
  const Tensor x = on_device(from_vector<float>({1, 3, 3, 0}, {2, 2}));
  x.requires_grad_();
  max(x).backward();
  REQUIRE(values(x.grad()) == std::vector<float>{0, 0.5, 0.5, 0});
  const auto [v, i] = max(on_device(from_vector<float>({2, 2, NAN, 5, 1, NAN}, {2, 3})), 1);
  REQUIRE(i.to_vector<std::int64_t>() == std::vector<std::int64_t>{2, 2});
  REQUIRE(std::isnan(values(v)[0]));
  REQUIRE(max(on_device(from_vector<float>({2, 2, 1})), 0).second.item<std::int64_t>() == 0);
}

TEST_CASE("NaN and infinity pass through, and relu keeps NaN", "[functions]") {
  const Tensor x = on_device(from_vector<float>({NAN, INFINITY, -INFINITY, -1}));
  REQUIRE(std::isnan(values(relu(x))[0]));
  REQUIRE(values(relu(x))[1] == INFINITY);
  REQUIRE(values(relu(x))[2] == 0);
  REQUIRE(values(exp(x))[2] == 0);
  REQUIRE(std::isnan(values(log(x))[3]));
  REQUIRE(std::isnan(values(sum(x))[0]));
  REQUIRE(std::isnan(values(max(x))[0]));
  REQUIRE(values(tanh(x))[2] == -1);
}

TEST_CASE("dropout keeps about 1 - p, scales by 1 / (1 - p), and does nothing in evaluation",
          "[functions]") {
  manual_seed(0);
  const Tensor x = on_device(ones({10000}));
  x.requires_grad_();
  const Tensor y = dropout(x, 0.25, true);
  const auto v = values(y);
  const auto kept = std::count_if(v.begin(), v.end(), [](float f) { return f != 0; });
  REQUIRE(std::abs(static_cast<double>(kept) - 7500) < 5 * std::sqrt(10000 * 0.25 * 0.75));
  REQUIRE(*std::max_element(v.begin(), v.end()) == 1 / 0.75F);
  y.backward(on_device(ones({10000})));
  REQUIRE(values(x.grad()) == v);
  REQUIRE(dropout(x, 0.25, false).is_same(x));
  REQUIRE(values(dropout(x, 1.0, true)) == std::vector<float>(10000, 0));
  REQUIRE_THROWS_AS(dropout(x, 1.5, true), UsageError);
}

TEST_CASE("gradients may reuse memory, but never memory that is still needed", "[functions]") {
  // Every backward here could overwrite the incoming gradient, but some gradients are still needed.
  const Tensor x = on_device(from_vector<float>({1, -2, 3}));
  x.requires_grad_();
  const Tensor seed = on_device(from_vector<float>({1, 2, 3}));
  const Tensor h = relu(x * 2.0);
  backward({h + neg(h) * 3.0}, {seed}, true);
  REQUIRE(values(seed) == std::vector<float>{1, 2, 3});
  REQUIRE(values(x.grad()) == std::vector<float>{-4, 0, -12});
  REQUIRE(values(h) == std::vector<float>{2, 0, 6});
}

TEST_CASE("wrong arguments are named", "[functions]") {
  const Tensor a = zeros({2, 3}), b = zeros({4});
  REQUIRE_THROWS_WITH(add(a, b), ContainsSubstring("add") && ContainsSubstring("[2, 3]") &&
                                     ContainsSubstring("[4]"));
  REQUIRE_THROWS_WITH(exp(arange(3)), ContainsSubstring("exp") && ContainsSubstring("i64"));
  REQUIRE_THROWS_WITH(mul(a, a.to(DType::f64)), ContainsSubstring("f64"));
  REQUIRE_THROWS_WITH(sum(a, {2}), ContainsSubstring("sum"));
  REQUIRE_THROWS_AS(sum(a, {0, 0}), UsageError);
  REQUIRE_THROWS_AS(cat({a, b}, 0), UsageError);
  REQUIRE_THROWS_AS(masked_fill(a, a, 0), UsageError);
  REQUIRE_THROWS_AS(masked_fill(b, zeros({2, 4}, {DType::boolean}), 0), UsageError);
  REQUIRE_THROWS_AS(mse_loss(a, b), UsageError);
  REQUIRE_THROWS_AS(max(zeros({0})), UsageError);
}

TEST_CASE("sums over nothing are zero, and shapes without elements pass", "[functions]") {
  const Tensor x = on_device(zeros({0, 3}));
  REQUIRE(values(sum(x, {0})) == std::vector<float>{0, 0, 0});
  REQUIRE(sum(x, {1}).sizes() == Shape{0});
  REQUIRE(add(x, on_device(zeros({3}))).sizes() == Shape{0, 3});
  x.requires_grad_();
  sum(exp(x)).backward();
  REQUIRE(x.grad().sizes() == Shape{0, 3});
}
