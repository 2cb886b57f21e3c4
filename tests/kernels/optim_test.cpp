// Compares the fused fast optimizer steps with the oracle and with the written formulas.
#include "kernels/optim.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/support.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::kernels::cpu;
using ringsmith::testing::distance;
using ringsmith::testing::ModeScope;
using ringsmith::testing::random_values;

TEST_CASE("fused SGD follows the oracle over 20 steps, every option and odd sizes") {
  for (const std::int64_t n : {0, 1, 3, 17, 127, 1025}) {
    for (const SgdStep& options :
         {SgdStep{.lr = 0.1}, SgdStep{.lr = 0.1, .weight_decay = 0.01},
          SgdStep{.lr = 0.05, .momentum = 0.9},
          SgdStep{.lr = 0.05, .momentum = 0.9, .dampening = 0.1, .weight_decay = 0.01},
          SgdStep{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}}) {
      std::vector<float> p = random_values(n, 1), q = p, buf(p.size()), other(p.size());
      SgdStep step = options;
      for (int t = 0; t < 20; ++t) {
        const std::vector<float> g = random_values(n, 100 + static_cast<unsigned>(t));
        step.first = t == 0;
        {
          const ModeScope fast(kernels::Mode::fast);
          sgd<float>(p, g, buf, step);
        }
        const ModeScope oracle(kernels::Mode::oracle);
        sgd<float>(q, g, other, step);
      }
      CHECK(distance(p, q) < 2e-6);
      CHECK(distance(buf, other) < 2e-6);
    }
  }
}

TEST_CASE("fused Adam and AdamW follow the oracle over 20 steps, amsgrad included") {
  for (const std::int64_t n : {0, 1, 3, 17, 127, 1025}) {
    for (const bool amsgrad : {false, true}) {
      for (const AdamStep& options :
           {AdamStep{.lr = 0.01}, AdamStep{.lr = 0.01, .weight_decay = 0.1},
            AdamStep{.lr = 0.003,
            .beta1 = 0.8,
            .beta2 = 0.95,
            .weight_decay = 0.1,
            .decoupled = true}}) {
        std::vector<float> p = random_values(n, 1), m(p.size()), v(p.size());
        std::vector<float> largest(amsgrad ? p.size() : 0);
        std::vector<float> q = p, m2 = m, v2 = v, largest2 = largest;
        AdamStep step = options;
        for (step.t = 1; step.t <= 20; ++step.t) {
          const auto g =
              random_values(n, 100 + static_cast<unsigned>(step.t), step.t == 7 ? 10 : 1);
          {
            const ModeScope fast(kernels::Mode::fast);
            adam<float>(p, g, m, v, largest, step);
          }
          const ModeScope oracle(kernels::Mode::oracle);
          adam<float>(q, g, m2, v2, largest2, step);
        }
        CHECK(distance(p, q) < 5e-6);
        CHECK(distance(v, v2) < 5e-6);
        CHECK(distance(largest, largest2) < 5e-6);
      }
    }
  }
}

TEST_CASE("an element has the same bits in an array and alone, as ZeRO's shards begin anywhere") {
  for (const kernels::Mode mode : {kernels::Mode::fast, kernels::Mode::oracle}) {
    const ModeScope scope(mode);
    const std::vector<float> start = random_values(127, 1), g = random_values(127, 2);
    const auto same = [&](const auto& step) {
      std::vector<float> p = start, m = random_values(127, 3), v = random_values(127, 4);
      for (float& x : v) x *= 0.01F * x;
      std::vector<float> largest = v;
      std::vector<float> q = p, m2 = m, v2 = v, largest2 = largest;
      step(std::span(p), std::span(g), std::span(m), std::span(v), std::span(largest));
      for (std::size_t i = 0; i < q.size(); ++i)
        step(std::span(q).subspan(i, 1), std::span(g).subspan(i, 1), std::span(m2).subspan(i, 1),
             std::span(v2).subspan(i, 1), std::span(largest2).subspan(i, 1));
      CHECK(p == q);
      CHECK(m == m2);
      CHECK(v == v2);
      CHECK(largest == largest2);
    };
    for (const double decay : {0.0, 0.1})
      for (const bool choice : {false, true}) {
        INFO("decay " << decay << ", nesterov, decoupled, amsgrad: " << choice);
        same([&](auto p, auto grad, auto m, auto /*v*/, auto /*largest*/) {
          sgd<float>(p, grad, m, {.lr = 0.1, .weight_decay = decay});
          sgd<float>(p, grad, m,
                     {.lr = 0.1, .momentum = 0.9, .weight_decay = decay, .nesterov = choice});
        });
        same([&](auto p, auto grad, auto m, auto v, auto largest) {
          adam<float>(p, grad, m, v, choice ? largest : largest.first(0),
                      {.lr = 0.1, .weight_decay = decay, .decoupled = choice, .t = 3});
        });
      }
  }
}

TEST_CASE("the first AdamW step is lr * sign(g) after decay, whatever the gradient's size") {
  for (const kernels::Mode mode : {kernels::Mode::fast, kernels::Mode::oracle}) {
    const ModeScope scope(mode);
    std::vector<float> p = {1, 1, 1}, m(3), v(3);
    const std::vector<float> g = {1e-3F, -4, 1e4F};
    adam<float>(p, g, m, v, {}, AdamStep{.lr = 0.1, .weight_decay = 0.5, .decoupled = true});
    CHECK(distance(p, std::vector<float>{0.85F, 1.05F, 0.85F}) < 2e-6);
  }
}

namespace {
double squares_of(const std::vector<float>& x) {
  double sum = -1;
  sum_of_squares<float>(x, {&sum, 1});
  return sum;
}
}  // namespace

TEST_CASE("the gradient norm is exact on integers and lets NaN and inf through") {
  for (const kernels::Mode mode : {kernels::Mode::fast, kernels::Mode::oracle}) {
    const ModeScope scope(mode);
    for (const std::size_t n : {0, 1, 31, 1023, 1024, 1025, 5000}) {
      const std::vector<float> threes(n, 3.0F);
      CHECK(squares_of(threes) == 9.0 * static_cast<double>(n));
    }
    std::vector<float> x(2000, 1.0F);
    x[700] = std::numeric_limits<float>::quiet_NaN();
    CHECK(std::isnan(squares_of(x)));
    scale<float>(x, std::vector<float>{0.5F});
    CHECK(std::isnan(x[700]));
    CHECK(x[1999] == 0.5F);
    x[700] = -std::numeric_limits<float>::infinity();
    CHECK(std::isinf(squares_of(x)));
  }
}

TEST_CASE("a NaN in the gradient reaches parameter and state, amsgrad's maximum included") {
  for (const kernels::Mode mode : {kernels::Mode::fast, kernels::Mode::oracle}) {
    const ModeScope scope(mode);
    std::vector<float> p(40, 1.0F), m(40), v(40), largest(40, 2.0F), g(40, 0.5F);
    g[33] = std::numeric_limits<float>::quiet_NaN();
    adam<float>(p, g, m, v, largest, AdamStep{});
    CHECK(std::isnan(p[33]));
    CHECK(std::isnan(largest[33]));
    CHECK(largest[32] == 2.0F);
    g[33] = 0.5F;
    adam<float>(p, g, m, v, largest, AdamStep{.t = 2});
    CHECK(std::isnan(largest[33]));
  }
}
