// Compares the vectorisable functions with float64.
#include "kernels/cpu/fast/vecmath.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/support/catch.hpp"

using namespace ringsmith::kernels::cpu;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Distance of y from the exact value, in units of the last place of the nearest float.
double ulps(float y, double exact) {
  const auto nearest = static_cast<float>(exact);
  if (std::isnan(exact)) return std::isnan(y) ? 0 : 1e30;
  if (std::isinf(nearest)) return y == nearest ? 0 : 1e30;
  if (!std::isfinite(y)) return 1e30;
  int exponent = 0;
  std::frexp(std::abs(nearest), &exponent);
  const double ulp = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::abs(static_cast<double>(y) - exact) / ulp;
}

// The worst error over every 509th float (a prime step visits all exponents and low bits).
template <class F, class G>
double worst(F ours, G exact) {
  double most = 0;
  for (std::uint64_t bits = 0; bits <= 0xffffffffULL; bits += 509) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (!std::isfinite(x)) continue;
    most = std::max(most, ulps(ours(x), exact(static_cast<double>(x))));
  }
  return most;
}

}  // namespace

TEST_CASE(
    "vector math is within 2 ulp of float64 (sigmoid: 3) over all exponents, subnormals included") {
  CHECK(worst([](float x) { return vec::exp(x); }, [](double x) { return std::exp(x); }) < 2.0);
  CHECK(worst([](float x) { return vec::log(x); }, [](double x) { return std::log(x); }) < 2.0);
  CHECK(worst([](float x) { return vec::tanh(x); }, [](double x) { return std::tanh(x); }) < 2.0);
  CHECK(worst([](float x) { return vec::erf(x); }, [](double x) { return std::erf(x); }) < 2.0);
  CHECK(worst([](float x) { return vec::sigmoid(x); },
              [](double x) { return 1 / (1 + std::exp(-x)); }) < 3.0);
}

TEST_CASE("vector math keeps NaN and maps the infinities as the C library does") {
  for (auto* f :
       {+[](float x) { return vec::exp(x); }, +[](float x) { return vec::log(x); },
        +[](float x) { return vec::tanh(x); }, +[](float x) { return vec::erf(x); },
        +[](float x) { return vec::sigmoid(x); }, +[](float x) { return vec::gelu_erf(x); },
        +[](float x) { return vec::gelu_tanh(x); },
        +[](float x) { return vec::gelu_erf_derivative(x); },
        +[](float x) { return vec::gelu_tanh_derivative(x); }}) {
    CHECK(std::isnan(f(kNaN)));
    CHECK(std::isnan(f(-kNaN)));
  }
  CHECK(vec::exp(kInf) == kInf);
  CHECK(vec::exp(-kInf) == 0.0F);
  CHECK(vec::exp(0.0F) == 1.0F);
  CHECK(vec::log(kInf) == kInf);
  CHECK(vec::log(0.0F) == -kInf);
  CHECK(vec::log(1.0F) == 0.0F);
  CHECK(std::isnan(vec::log(-1.0F)));
  CHECK(std::isnan(vec::log(-kInf)));
  CHECK(vec::tanh(kInf) == 1.0F);
  CHECK(vec::tanh(-kInf) == -1.0F);
  CHECK(vec::erf(-kInf) == -1.0F);
  CHECK(std::signbit(vec::tanh(-0.0F)));
  CHECK(vec::sigmoid(-kInf) == 0.0F);
  CHECK(vec::sigmoid(kInf) == 1.0F);
  CHECK(vec::gelu_tanh(kInf) == kInf);
}

TEST_CASE("gelu and its derivative agree with float64 where the result is not tiny") {
  const double k = std::sqrt(2 / std::acos(-1.0));
  for (float x = -9.0F; x < 9.0F; x += 0.0009765625F) {
    const auto d = static_cast<double>(x);
    const double erf_cdf = 0.5 * (1 + std::erf(d / std::sqrt(2.0)));
    const double pdf = std::exp(-0.5 * d * d) * 0.5 * k;
    const double t = std::tanh(k * (d + 0.044715 * d * d * d));
    const double dt = (1 - t * t) * k * (1 + 3 * 0.044715 * d * d);
    REQUIRE(std::abs(vec::gelu_erf(x) - d * erf_cdf) < 3e-7 * (1 + std::abs(d)));
    REQUIRE(std::abs(vec::gelu_erf_derivative(x) - (erf_cdf + d * pdf)) < 5e-7);
    REQUIRE(std::abs(vec::gelu_tanh(x) - 0.5 * d * (1 + t)) < 3e-7 * (1 + std::abs(d)));
    REQUIRE(std::abs(vec::gelu_tanh_derivative(x) - (0.5 * (1 + t) + 0.5 * d * dt)) < 2e-6);
  }
}
