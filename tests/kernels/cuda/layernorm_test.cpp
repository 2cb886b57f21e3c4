// Compares layer normalisation on a device with float64 on the CPU.
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

// Which arrays begin one element after a pack boundary.
enum class Misaligned { none, all, weights };

template <class T>
Result<T> on_device(const std::vector<T>& x, const std::vector<T>& w, const std::vector<T>& b,
                    const std::vector<T>& dy, std::size_t rows, std::size_t n,
                    Misaligned misaligned) {
  const std::size_t offset = misaligned == Misaligned::all ? 1 : 0,
                    of_weights = misaligned == Misaligned::none ? 0 : 1;
  const OnDevice<T> dx_(x.size(), offset), y(x.size(), offset), mean(rows, 1), rstd(rows, 1),
      dw(n, 1), db(n, 1), x_(x, offset), w_(w, of_weights), b_(b, of_weights), dy_(dy, offset);
  cuda::layer_norm<T>(x_.view(), w_.view(), b_.view(), 1e-5, y.span(), mean.span(), rstd.span());
  cuda::layer_norm_backward<T>(dy_.view(), x_.view(), w_.view(), mean.view(), rstd.view(),
                               dx_.span(), dw.span(), db.span());
  return {y.host(), mean.host(), rstd.host(), dx_.host(), dw.host(), db.host()};
}

}  // namespace

TEST_CASE("layer norm on a device agrees with float64, and with itself bit for bit", "[cuda]") {
  const std::vector<std::pair<std::int64_t, std::int64_t>> shapes{
      {0, 4},     {1, 1},    {3, 2},    {7, 3},    {65, 17},  {130, 64},
      {300, 33},  {9, 128},  {5, 511},  {5, 512},  {3, 513},  {37, 768},
      {66, 1024}, {5, 1025}, {2, 4095}, {2, 4096}, {2, 4097}, {3, 5000}};
  for (const auto& [rows, n] : shapes)
    for (const bool affine : {true, false})
      for (const auto misaligned : {Misaligned::none, Misaligned::all, Misaligned::weights}) {
        INFO(rows << " x " << n << ", affine " << affine << ", misaligned "
                  << static_cast<int>(misaligned));
        auto x = random_values(rows * n, 1, 2);
        for (float& v : x) v += 5.0F;
        const auto dy = random_values(rows * n, 2);
        const auto w = random_values(affine ? n : 0, 3), b = random_values(affine ? n : 0, 4);
        const auto r = static_cast<std::size_t>(rows), c = static_cast<std::size_t>(n);
        const auto got = on_device(x, w, b, dy, r, c, misaligned);
        const auto want = on_cpu(widen(x), widen(w), widen(b), widen(dy), r, c);
        REQUIRE(distance(got.y, narrow(want.y)) < (n <= 3 ? 5e-5 : 1e-5));
        REQUIRE(distance(got.mean, narrow(want.mean)) < 3e-7);
        REQUIRE(distance(got.dw, narrow(want.dw)) < (n <= 3 ? 5e-5 : 1e-5));
        REQUIRE(distance(got.db, narrow(want.db)) < 3e-6);
        if (n > 3) REQUIRE(distance(got.dx, narrow(want.dx)) < 1e-5);
        REQUIRE(on_device(x, w, b, dy, r, c, misaligned) == got);
      }
}

TEST_CASE("layer norm of doubles on a device agrees to 1e-12", "[cuda]") {
  for (const std::int64_t n : {5, 256, 300, 2048, 2100}) {
    const std::int64_t rows = 9;
    const auto x = widen(random_values(rows * n, 1)), dy = widen(random_values(rows * n, 2)),
               w = widen(random_values(n, 3)), b = widen(random_values(n, 4));
    const auto got = on_device(x, w, b, dy, 9, static_cast<std::size_t>(n), Misaligned::none);
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
    const auto all = on_device<float>(x, {}, {}, dy, 3, n, Misaligned::none);
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

namespace {

template <class T>
std::vector<T> plus(std::vector<T> a, const std::vector<T>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = a[i] + b[i];
  return a;
}

// The inputs of a residual branch, and the gradients that it receives.
template <class T>
struct Branch {
  std::vector<T> x, residual, w, b, dy, dsum;
};

// misaligned: the number of the array whose rows do not start at a pack boundary, or 0.
template <class T>
void check_branch(const Branch<T>& in, std::size_t rows, std::size_t n, int misaligned) {
  const auto off = [&](int array) { return std::size_t{misaligned == array ? 1U : 0U}; };
  const OnDevice<T> x(in.x, off(1)), residual(in.residual, off(2)), w(in.w, off(8)),
      b(in.b, off(9)), dy(in.dy, off(3)), dsum(in.dsum, off(4)), sum(in.x.size(), off(5)),
      y(in.x.size(), off(6)), dx(in.x.size(), off(7)), mean(rows, 1), rstd(rows, 1), dw(n, 1),
      db(n, 1);
  cuda::add_layer_norm<T>(x.view(), residual.view(), w.view(), b.view(), 1e-5, sum.span(), y.span(),
                          mean.span(), rstd.span());
  cuda::add_layer_norm_backward<T>(dy.view(), dsum.view(), sum.view(), w.view(), mean.view(),
                                   rstd.view(), dx.span(), dw.span(), db.span());
  const Result<T> got{y.host(), mean.host(), rstd.host(), dx.host(), dw.host(), db.host()};

  // The results must have the bits of the separate kernels, whichever arrays are accessed in packs.
  const auto total = plus(in.x, in.residual);
  REQUIRE(same_bits(sum.host(), total));
  const auto separate = on_device<T>(total, in.w, in.b, in.dy, rows, n, Misaligned::none);
  REQUIRE(same_bits(got.y, separate.y));
  REQUIRE(same_bits(got.mean, separate.mean));
  REQUIRE(same_bits(got.rstd, separate.rstd));
  REQUIRE(same_bits(got.dx, plus(separate.dx, in.dsum)));
  REQUIRE(same_bits(got.dw, separate.dw));
  REQUIRE(same_bits(got.db, separate.db));

  // In place: the sum overwrites the residual, and the gradient overwrites dsum.
  cuda::add_layer_norm<T>(x.view(), residual.view(), w.view(), b.view(), 1e-5, residual.span(),
                          y.span(), mean.span(), rstd.span());
  cuda::add_layer_norm_backward<T>(dy.view(), dsum.view(), residual.view(), w.view(), mean.view(),
                                   rstd.view(), dsum.span(), dw.span(), {});
  REQUIRE(same_bits(residual.host(), total));
  REQUIRE(same_bits(dsum.host(), got.dx));
  REQUIRE(same_bits(dw.host(), got.dw));
}

}  // namespace

TEMPLATE_TEST_CASE("layer norm with its residual: the bits of an addition and of layer norm",
                   "[cuda][add_layer_norm]", float, double) {
  using T = TestType;
  const std::vector<std::pair<std::int64_t, std::int64_t>> shapes{
      {0, 4},    {1, 1},    {7, 3},    {65, 17},  {70, 64},  {9, 511},  {3, 512}, {3, 513},
      {37, 768}, {66, 900}, {3, 1024}, {3, 1025}, {2, 2050}, {2, 4096}, {3, 4097}};
  for (const auto& [rows, n] : shapes)
    for (const bool affine : {true, false})
      for (int misaligned = 0; misaligned <= 9; ++misaligned) {
        if (misaligned > 0 && (!affine || n % 4 != 0)) continue;
        INFO(rows << " x " << n << ", affine " << affine << ", misaligned " << misaligned);
        const auto values = [](std::int64_t count, unsigned seed) {
          const auto x = random_values(count, seed);
          return std::vector<T>(x.begin(), x.end());
        };
        Branch<T> in{values(rows * n, 1),       values(rows * n, 2), values(affine ? n : 0, 3),
                     values(affine ? n : 0, 4), values(rows * n, 5), values(rows * n, 6)};
        if (rows > 2) in.residual[static_cast<std::size_t>(n)] = std::numeric_limits<T>::infinity();
        check_branch(in, static_cast<std::size_t>(rows), static_cast<std::size_t>(n), misaligned);
      }
}

TEST_CASE("layer norm with its residual on a device agrees with the oracle in float64",
          "[cuda][add_layer_norm]") {
  for (const std::size_t n : {5, 96, 768, 1500, 5000}) {
    const auto size = static_cast<std::int64_t>(9 * n), width = static_cast<std::int64_t>(n);
    const auto x = widen(random_values(size, 1)), r = widen(random_values(size, 2)),
               w = widen(random_values(width, 3)), b = widen(random_values(width, 4)),
               dy = widen(random_values(size, 5)), dsum = widen(random_values(size, 6));
    std::vector<double> sum(x), y(x), mean(9), rstd(9), dx(x), dw(n), db(n);
    cpu::add_layer_norm<double>(x, r, w, b, 1e-5, sum, y, mean, rstd);
    cpu::add_layer_norm_backward<double>(dy, dsum, sum, w, mean, rstd, dx, dw, db);
    const OnDevice<double> x_(x), r_(r), w_(w), b_(b), dy_(dy), dsum_(dsum), sum_(x.size()),
        y_(x.size()), mean_(9), rstd_(9), dx_(x.size()), dw_(n), db_(n);
    cuda::add_layer_norm<double>(x_.view(), r_.view(), w_.view(), b_.view(), 1e-5, sum_.span(),
                                 y_.span(), mean_.span(), rstd_.span());
    cuda::add_layer_norm_backward<double>(dy_.view(), dsum_.view(), sum_.view(), w_.view(),
                                          mean_.view(), rstd_.view(), dx_.span(), dw_.span(),
                                          db_.span());
    REQUIRE(sum_.host() == sum);
    const auto close = [](const OnDevice<double>& got, const std::vector<double>& want) {
      const auto values = got.host();
      for (std::size_t i = 0; i < want.size(); ++i) REQUIRE(std::abs(values[i] - want[i]) < 1e-12);
    };
    close(y_, y);
    close(mean_, mean);
    close(rstd_, rstd);
    close(dx_, dx);
    close(dw_, dw);
    close(db_, db);
  }
}
