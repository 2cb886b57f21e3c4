// Compares layer normalisation in both modes with float64.
#include "kernels/layernorm.hpp"

#include <cmath>
#include <limits>
#include <vector>

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

template <class T>
struct Result {
  std::vector<T> y, mean, rstd, dx, dw, db;
};

template <class T>
Result<T> run(const std::vector<T>& x, const std::vector<T>& w, const std::vector<T>& b,
              const std::vector<T>& dy, std::size_t rows, std::size_t n) {
  Result<T> r{std::vector<T>(x.size()), std::vector<T>(rows), std::vector<T>(rows),
              std::vector<T>(x.size()), std::vector<T>(n),    std::vector<T>(n)};
  layer_norm<T>(x, w, b, 1e-5, r.y, r.mean, r.rstd);
  layer_norm_backward<T>(dy, x, w, r.mean, r.rstd, r.dx, r.dw, r.db);
  return r;
}

}  // namespace

TEST_CASE("layer norm and its gradients agree with float64, with and without weight and bias") {
  for (const kernels::Mode mode : {kernels::Mode::fast, kernels::Mode::oracle}) {
    const ModeScope scope(mode);
    for (const std::int64_t rows : {0, 1, 3, 63, 64, 65, 130})
      for (const std::int64_t n : {1, 2, 3, 15, 16, 17, 33, 65, 127, 128})
        for (const bool affine : {true, false}) {
          auto x = random_values(rows * n, 1, 2);
          for (float& v : x) v += 5.0F;  // E[x^2] - E[x]^2 would lose digits here
          const auto dy = random_values(rows * n, 2);
          const auto w = random_values(affine ? n : 0, 3), b = random_values(affine ? n : 0, 4);
          const auto r = static_cast<std::size_t>(rows), c = static_cast<std::size_t>(n);
          const auto got = run(x, w, b, dy, r, c);
          const auto want = run(widen(x), widen(w), widen(b), widen(dy), r, c);
          REQUIRE(distance(got.y, narrow(want.y)) < (n <= 3 ? 5e-5 : 1e-5));
          REQUIRE(distance(got.dw, narrow(want.dw)) < (n <= 3 ? 5e-5 : 1e-5));
          REQUIRE(distance(got.db, narrow(want.db)) < 3e-6);
          if (n > 3) REQUIRE(distance(got.dx, narrow(want.dx)) < 1e-5);
        }
  }
}

TEST_CASE("a constant row is normalised to zero, a row with NaN to NaN, its neighbours unharmed") {
  for (const kernels::Mode mode : {kernels::Mode::fast, kernels::Mode::oracle}) {
    const ModeScope scope(mode);
    std::vector<float> x(3 * 40, 7.0F), y(x.size()), mean(3), rstd(3);
    x[45] = std::numeric_limits<float>::quiet_NaN();
    layer_norm<float>(x, {}, {}, 1e-5, y, mean, rstd);
    CHECK(y[0] == 0.0F);
    for (std::size_t i = 40; i < 80; ++i) CHECK(std::isnan(y[i]));
    CHECK(y[119] == 0.0F);
    CHECK(std::abs(rstd[0] - 316.22777F) < 1e-3F);
  }
}

TEST_CASE("rows far from zero are as exact as the oracle's, however long") {
  for (const float mean : {0.0F, 10.0F, 1e3F, 1e5F, 1e7F, -1e7F, 1e20F})
    for (const float deviation : {1.0F, 30.0F, 1000.0F})
      for (const std::int64_t n : {7, 128, 1000, 4096, 65537}) {
        CAPTURE(mean, deviation, n);
        auto x = random_values(2 * n, 11, deviation);
        for (float& v : x) v += mean;
        const auto width = static_cast<std::size_t>(n);
        const auto w = random_values(n, 3), b = random_values(n, 4), dy = random_values(2 * n, 2);
        const auto want = run(widen(x), widen(w), widen(b), widen(dy), 2, width);
        const auto error = [&](kernels::Mode mode) {
          const ModeScope scope(mode);
          const auto got = run(x, w, b, dy, 2, width);
          return std::pair(distance(got.y, narrow(want.y)), distance(got.dx, narrow(want.dx)));
        };
        const auto [y, dx] = error(kernels::Mode::fast);
        const auto [oracle_y, oracle_dx] = error(kernels::Mode::oracle);
        CHECK(y <= 4 * oracle_y + 1e-5);
        CHECK(dx <= 4 * oracle_dx + 1e-5);
      }
}

TEST_CASE("gradients that are not wanted may be empty") {
  for (const kernels::Mode mode : {kernels::Mode::fast, kernels::Mode::oracle}) {
    const ModeScope scope(mode);
    const auto x = random_values(3 * 5, 1), dy = random_values(3 * 5, 2);
    const auto all = run<float>(x, {}, {}, dy, 3, 5);
    std::vector<float> only_dx(15), only_db(5);
    layer_norm_backward<float>(dy, x, {}, all.mean, all.rstd, only_dx, {}, {});
    layer_norm_backward<float>(dy, x, {}, all.mean, all.rstd, {}, {}, only_db);
    CHECK(only_dx == all.dx);
    CHECK(only_db == all.db);
  }
}
