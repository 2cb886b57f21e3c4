// Compares both modes of softmax, log_softmax and the losses with float64.
#include "kernels/softmax.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/loss.hpp"
#include "tests/kernels/support.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::kernels::cpu;
using ringsmith::testing::distance;
using ringsmith::testing::ModeScope;
using ringsmith::testing::narrow;
using ringsmith::testing::random_values;
using ringsmith::testing::widen;

namespace {
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
const std::vector<kernels::Mode> kModes = {kernels::Mode::fast, kernels::Mode::oracle};
}  // namespace

TEST_CASE("softmax and log_softmax agree with float64 for odd lengths, along any dimension") {
  for (const kernels::Mode mode : kModes) {
    const ModeScope scope(mode);
    for (const std::int64_t n : {1, 3, 7, 8, 15, 16, 17, 31, 33, 65, 127, 1000})
      for (const std::int64_t inner : {1, 3, 33}) {
        const Slices s{3, n, inner};
        const auto x = random_values(3 * n * inner, 1, 4), dy = random_values(3 * n * inner, 2);
        // In PyTorch's order, sums over any dimension other than the last are serial.
        const double tolerance = n == 1000 && inner > 1 ? 1e-5 : 1e-6;
        const auto x64 = widen(x), dy64 = widen(dy);
        std::vector<float> y(x.size()), dx(x.size());
        std::vector<double> y64(x.size()), dx64(x.size());
        softmax<float>(x, y, s);
        softmax<double>(x64, y64, s);
        REQUIRE(distance(y, narrow(y64)) < tolerance);
        softmax_backward<float>(dy, y, dx, s);
        softmax_backward<double>(dy64, y64, dx64, s);
        REQUIRE(distance(dx, narrow(dx64)) < tolerance);
        log_softmax<float>(x, y, s);
        log_softmax<double>(x64, y64, s);
        REQUIRE(distance(y, narrow(y64)) < tolerance);
        log_softmax_backward<float>(dy, y, dx, s);
        log_softmax_backward<double>(dy64, y64, dx64, s);
        REQUIRE(distance(dx, narrow(dx64)) < 2 * tolerance);
      }
  }
}

TEST_CASE("softmax survives large logits, masks with -inf, and does not hide NaN") {
  for (const kernels::Mode mode : kModes) {
    const ModeScope scope(mode);
    for (const std::int64_t inner : {1, 2}) {
      const auto run = [&](std::vector<float> row) {
        std::vector<float> x, y, first;
        for (const float v : row) x.insert(x.end(), static_cast<std::size_t>(inner), v);
        y.resize(x.size());
        softmax<float>(x, y, {1, static_cast<std::int64_t>(row.size()), inner});
        for (std::size_t i = 0; i < y.size(); i += static_cast<std::size_t>(inner))
          first.push_back(y[i]);
        return first;
      };
      CHECK(run({1e30F, 1e30F, -1e30F}) == std::vector<float>{0.5F, 0.5F, 0.0F});
      CHECK(run({-kInf, 3.0F, -kInf}) == std::vector<float>{0.0F, 1.0F, 0.0F});
      CHECK(std::isnan(run({-kInf, -kInf})[0]));
      std::vector<float> row(40, 1.0F);
      row[37] = kNaN;
      for (const float v : run(row)) CHECK(std::isnan(v));
      CHECK(std::isnan(run({1.0F, kInf})[1]));  // inf - inf, as in PyTorch
    }
    std::vector<float> none;
    softmax<float>(none, none, {0, 5, 1});
    softmax<float>(none, none, {5, 0, 1});
  }
}

TEST_CASE("cross entropy's gradient agrees with float64, with smoothing and ignored rows") {
  for (const kernels::Mode mode : kModes) {
    const ModeScope scope(mode);
    for (const std::int64_t classes : {1, 2, 10, 17, 65})
      for (const double smoothing : {0.0, 0.1}) {
        const std::int64_t n = 33;
        const auto x = random_values(n * classes, 5, 3), g = random_values(n, 6);
        std::vector<std::int64_t> index;
        for (std::int64_t i = 0; i < n; ++i) index.push_back(i % 4 == 0 ? -100 : (7 * i) % classes);
        const Targets t{index, classes, -100, smoothing};
        std::vector<float> lp(x.size()), dx(x.size()), losses(g.size());
        std::vector<double> lp64(x.size()), dx64(x.size()), losses64(g.size());
        log_softmax<float>(x, lp, {n, classes, 1});
        log_softmax<double>(widen(x), lp64, {n, classes, 1});
        nll_rows<float>(lp, t, losses);
        nll_rows<double>(lp64, t, losses64);
        CHECK(distance(losses, narrow(losses64)) < 1e-6);
        float loss = -1, divisor = -1;
        reduce_losses<float>(losses, t, true, {&loss, 1}, {&divisor, 1});
        CHECK(divisor == 24.0F);
        reduce_losses<float>(losses, t, false, {&loss, 1}, {&divisor, 1});
        CHECK(divisor == 1.0F);
        cross_entropy_backward<float>(std::span<const float>(lp), t, g, dx);
        cross_entropy_backward<double>(std::span<const double>(lp64), t, widen(g), dx64);
        CHECK(distance(dx, narrow(dx64)) < 1e-6);
        for (std::int64_t j = 0; j < classes; ++j) CHECK(dx[static_cast<std::size_t>(j)] == 0.0F);
      }
  }
}

TEST_CASE("a batch of ignored targets counts nothing, so that its mean is 0 / 0") {
  const std::vector<std::int64_t> index(5, -100);
  const std::vector<float> losses(5, 0.0F);
  float loss = -1, divisor = -1;
  reduce_losses<float>(losses, {index, 3}, true, {&loss, 1}, {&divisor, 1});
  CHECK(std::isnan(loss));
  CHECK(divisor == 0.0F);
}

TEST_CASE("a target outside the classes is an error that names row and value") {
  const std::vector<std::int64_t> index = {0, -100, 7};
  CHECK_THROWS_WITH(check_targets("cross_entropy", {index, 7}),
                    ContainsSubstring("target 7 of row 2 is outside [0, 7)"));
  CHECK_NOTHROW(check_targets("cross_entropy", {index, 8}));
}

namespace {
template <class T>
T error_of(const std::vector<T>& x, const std::vector<T>& y, double divisor = 1) {
  T loss = -1;
  squared_error<T>(std::span<const T>(x), std::span<const T>(y), divisor, {&loss, 1});
  return loss;
}
}  // namespace

TEST_CASE("squared error is exact on integers and close to float64 elsewhere") {
  for (const kernels::Mode mode : kModes) {
    const ModeScope scope(mode);
    for (const std::int64_t n : {0, 1, 7, 8, 33, 127, 4096, 4097, 10007}) {
      const std::vector<float> x(static_cast<std::size_t>(n), 3.0F), y(x.size(), 1.0F);
      CHECK(error_of(x, y) == 4.0F * static_cast<float>(n));
      CHECK(error_of(x, y, 4) == static_cast<float>(n));
      const auto a = random_values(n, 1), b = random_values(n, 2);
      const double exact = error_of(widen(a), widen(b));
      CHECK(std::abs(static_cast<double>(error_of(a, b)) - exact) <= 1e-6 * exact);
    }
  }
}
