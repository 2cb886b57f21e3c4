// Layer normalisation on a device against float64 on the CPU: rows in a warp, in a block, and too
// long for either; aligned and not.
#include "kernels/layernorm.hpp"

#include <cmath>
#include <limits>

#include "tests/kernels/cuda/support.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
namespace cpu = kernels::cpu;
namespace cuda = kernels::cuda;

namespace {

template <class T>
struct Result {
  std::vector<T> y, mean, rstd, dx, dw, db;
  bool operator==(const Result&) const = default;
};

Result<double> on_cpu(const std::vector<double>& x, const std::vector<double>& w,
                      const std::vector<double>& b, const std::vector<double>& dy, std::size_t rows,
                      std::size_t n) {
  Result<double> r{x, std::vector<double>(rows), std::vector<double>(rows),
                   x, std::vector<double>(n),    std::vector<double>(n)};
  cpu::layer_norm<double>(x, w, b, 1e-5, r.y, r.mean, r.rstd);
  cpu::layer_norm_backward<double>(dy, x, w, r.mean, r.rstd, r.dx, r.dw, r.db);
  return r;
}

template <class T>
Result<T> on_device(const std::vector<T>& x, const std::vector<T>& w, const std::vector<T>& b,
                    const std::vector<T>& dy, std::size_t rows, std::size_t n, std::size_t offset) {
  const OnDevice<T> dx_(x.size(), offset), y(x.size(), offset), mean(rows, 1), rstd(rows, 1),
      dw(n, 1), db(n, 1), x_(x, offset), w_(w, 1), b_(b, 1), dy_(dy, offset);
  cuda::layer_norm<T>(x_.view(), w_.view(), b_.view(), 1e-5, y.span(), mean.span(), rstd.span());
  cuda::layer_norm_backward<T>(dy_.view(), x_.view(), w_.view(), mean.view(), rstd.view(),
                               dx_.span(), dw.span(), db.span());
  return {y.host(), mean.host(), rstd.host(), dx_.host(), dw.host(), db.host()};
}

}  // namespace

TEST_CASE("layer norm on a device agrees with float64, and with itself bit for bit", "[cuda]") {
  const std::vector<std::pair<std::int64_t, std::int64_t>> shapes{
      {0, 4},   {1, 1},   {3, 2},   {7, 3},    {65, 17},  {130, 64}, {300, 33}, {9, 128},
      {5, 511}, {5, 512}, {3, 513}, {20, 768}, {2, 4095}, {2, 4096}, {2, 4097}, {3, 5000}};
  for (const auto& [rows, n] : shapes)
    for (const bool affine : {true, false})
      for (const std::size_t offset : {0, 1}) {
        INFO(rows << " x " << n << ", affine " << affine << ", offset " << offset);
        auto x = random_values(rows * n, 1, 2);
        for (float& v : x) v += 5.0F;
        const auto dy = random_values(rows * n, 2);
        const auto w = random_values(affine ? n : 0, 3), b = random_values(affine ? n : 0, 4);
        const auto r = static_cast<std::size_t>(rows), c = static_cast<std::size_t>(n);
        const auto got = on_device(x, w, b, dy, r, c, offset);
        const auto want = on_cpu(widen(x), widen(w), widen(b), widen(dy), r, c);
        REQUIRE(distance(got.y, narrow(want.y)) < (n <= 3 ? 5e-5 : 1e-5));
        REQUIRE(distance(got.mean, narrow(want.mean)) < 3e-7);
        REQUIRE(distance(got.dw, narrow(want.dw)) < (n <= 3 ? 5e-5 : 1e-5));
        REQUIRE(distance(got.db, narrow(want.db)) < 3e-6);
        if (n > 3) REQUIRE(distance(got.dx, narrow(want.dx)) < 1e-5);
        REQUIRE(on_device(x, w, b, dy, r, c, offset) == got);
      }
}

TEST_CASE("layer norm of doubles on a device agrees to 1e-12", "[cuda]") {
  for (const std::int64_t n : {5, 256, 300, 2048, 2100}) {
    const std::int64_t rows = 9;
    const auto x = widen(random_values(rows * n, 1)), dy = widen(random_values(rows * n, 2)),
               w = widen(random_values(n, 3)), b = widen(random_values(n, 4));
    const auto got = on_device(x, w, b, dy, 9, static_cast<std::size_t>(n), 0);
    const auto want = on_cpu(x, w, b, dy, 9, static_cast<std::size_t>(n));
    for (const auto member : {&Result<double>::y, &Result<double>::dx, &Result<double>::dw,
                              &Result<double>::db, &Result<double>::rstd})
      for (std::size_t i = 0; i < (got.*member).size(); ++i)
        REQUIRE(std::abs((got.*member)[i] - (want.*member)[i]) < 1e-12);
  }
}

TEST_CASE("a constant row on a device is normalised to zero, NaN stays in its row", "[cuda]") {
  for (const std::size_t n : {40, 600, 5000}) {
    std::vector<float> x(3 * n, 7.0F);
    x[n + 5] = std::numeric_limits<float>::quiet_NaN();
    const OnDevice<float> x_(x), y(3 * n), mean(3), rstd(3);
    cuda::layer_norm<float>(x_.view(), {}, {}, 1e-5, y.span(), mean.span(), rstd.span());
    const auto result = y.host();
    CHECK(result[0] == 0.0F);
    for (std::size_t i = n; i < 2 * n; ++i) REQUIRE(std::isnan(result[i]));
    CHECK(result[3 * n - 1] == 0.0F);
    CHECK(std::abs(rstd.host()[0] - 316.22777F) < 1e-3F);
  }
}

TEST_CASE("gradients of layer norm that are not wanted may be empty on a device", "[cuda]") {
  for (const std::size_t n : {5, 600, 4100}) {
    const auto size = static_cast<std::int64_t>(3 * n);
    const auto x = random_values(size, 1), dy = random_values(size, 2);
    const auto all = on_device<float>(x, {}, {}, dy, 3, n, 0);
    const OnDevice<float> x_(x), dy_(dy), mean(all.mean), rstd(all.rstd), dx(3 * n), db(n), dw(n);
    cuda::layer_norm_backward<float>(dy_.view(), x_.view(), {}, mean.view(), rstd.view(), dx.span(),
                                     {}, {});
    cuda::layer_norm_backward<float>(dy_.view(), x_.view(), {}, mean.view(), rstd.view(), {}, {},
                                     db.span());
    cuda::layer_norm_backward<float>(dy_.view(), x_.view(), {}, mean.view(), rstd.view(), {},
                                     dw.span(), {});
    CHECK(dx.host() == all.dx);
    CHECK(db.host() == all.db);
    CHECK(dw.host() == all.dw);
  }
}
