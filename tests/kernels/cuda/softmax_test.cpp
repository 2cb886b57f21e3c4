// Compares softmax, log_softmax and the losses on a device with float64.
#include "kernels/softmax.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/loss.hpp"
#include "tests/kernels/cuda/support.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
using namespace ringsmith::kernels;

namespace {
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
}  // namespace

TEST_CASE("softmax and log_softmax on a device agree with float64 along any dimension", "[cuda]") {
  for (const std::int64_t n : {1, 3, 17, 65, 512, 513, 1000, 4096, 4097, 9000})
    for (const std::int64_t inner : {1, 3})
      for (const std::size_t offset : {0, 1}) {
        if (inner > 1 && n > 1000) continue;
        INFO("n " << n << ", inner " << inner << ", offset " << offset);
        const Slices s{5, n, inner};
        const auto x = random_values(5 * n * inner, 1, 4), dy = random_values(5 * n * inner, 2);
        const auto x64 = widen(x), dy64 = widen(dy);
        std::vector<double> y64(x.size()), dx64(x.size());
        const OnDevice<float> x_(x, offset), dy_(dy, offset), y(x.size(), offset),
            dx(x.size(), offset);
        cuda::softmax<float>(x_.view(), y.span(), s);
        cuda::softmax_backward<float>(dy_.view(), y.view(), dx.span(), s);
        cpu::softmax<double>(x64, y64, s);
        cpu::softmax_backward<double>(dy64, y64, dx64, s);
        REQUIRE(distance(y.host(), narrow(y64)) < 1e-6);
        REQUIRE(distance(dx.host(), narrow(dx64)) < 1e-6);
        cuda::log_softmax<float>(x_.view(), y.span(), s);
        cuda::log_softmax_backward<float>(dy_.view(), y.view(), dx.span(), s);
        cpu::log_softmax<double>(x64, y64, s);
        cpu::log_softmax_backward<double>(dy64, y64, dx64, s);
        REQUIRE(distance(y.host(), narrow(y64)) < 1e-6);
        REQUIRE(distance(dx.host(), narrow(dx64)) < 2e-6);
        // In place, the bits are the same.
        const auto first = y.host();
        cuda::log_softmax<float>(x_.view(), x_.span(), s);
        REQUIRE(x_.host() == first);
      }
}

TEST_CASE("softmax on a device survives large logits and -inf, and does not hide NaN", "[cuda]") {
  for (const std::int64_t inner : {1, 2})
    for (const std::size_t n : {8, 600, 5000}) {
      if (inner > 1 && n > 8) continue;
      const auto run = [&](std::vector<float> row, float rest) {
        row.resize(n, rest);
        std::vector<float> x;
        for (const float v : row) x.insert(x.end(), static_cast<std::size_t>(inner), v);
        const OnDevice<float> x_(x), y(x.size());
        cuda::softmax<float>(x_.view(), y.span(), {1, static_cast<std::int64_t>(n), inner});
        std::vector<float> all = y.host(), first;
        for (std::size_t i = 0; i < all.size(); i += static_cast<std::size_t>(inner))
          first.push_back(all[i]);
        return first;
      };
      const auto large = run({1e30F, 1e30F}, -1e30F);
      CHECK((large[0] == 0.5F && large[1] == 0.5F && large[n - 1] == 0.0F));
      const auto masked = run({-kInf, 3.0F}, -kInf);
      CHECK((masked[0] == 0.0F && masked[1] == 1.0F && masked[n - 1] == 0.0F));
      for (const float v : run({-kInf}, -kInf)) REQUIRE(std::isnan(v));
      for (const float v : run({1.0F, kNaN}, 1.0F)) REQUIRE(std::isnan(v));
      for (const float v : run({1.0F, kInf}, 0.0F)) REQUIRE(std::isnan(v));
    }
  cuda::softmax<float>(std::span<const float>(), std::span<float>(), {0, 5, 1});
  cuda::softmax<float>(std::span<const float>(), std::span<float>(), {5, 0, 1});
}

TEST_CASE("losses on a device agree with float64, with smoothing and ignored rows", "[cuda]") {
  for (const std::int64_t classes : {1, 2, 65, 600})
    for (const double smoothing : {0.0, 0.1})
      for (const std::int64_t n : {1, 33, 300}) {
        const auto x = random_values(n * classes, 5, 3), g = random_values(n, 6);
        std::vector<std::int64_t> index;
        for (std::int64_t i = 0; i < n; ++i) index.push_back(i % 4 == 1 ? -100 : (7 * i) % classes);
        const Targets t{index, classes, -100, smoothing};
        const OnDevice<std::int64_t> index_(index);
        const Targets on_device{index_.view(), classes, -100, smoothing};
        const OnDevice<float> x_(x), lp(x.size()), losses(g.size()), g_(g), dx(x.size()), loss(1),
            divisor(1);
        std::vector<double> lp64(x.size()), losses64(g.size()), dx64(x.size()), loss64(1),
            divisor64(1);
        cuda::check_targets("test", on_device);
        cuda::log_softmax<float>(x_.view(), lp.span(), {n, classes, 1});
        cpu::log_softmax<double>(widen(x), lp64, {n, classes, 1});
        cuda::nll_rows<float>(lp.view(), on_device, losses.span());
        cpu::nll_rows<double>(lp64, t, losses64);
        CHECK(distance(losses.host(), narrow(losses64)) < 1e-6);
        for (const bool mean : {false, true}) {
          cuda::reduce_losses<float>(losses.view(), on_device, mean, loss.span(), divisor.span());
          cpu::reduce_losses<double>(std::span<const double>(losses64), t, mean, loss64, divisor64);
          CHECK(distance(loss.host(), narrow(loss64)) < 1e-6);
          CHECK(divisor.host()[0] == static_cast<float>(divisor64[0]));
        }
        cuda::cross_entropy_backward<float>(lp.view(), on_device, g_.view(), dx.span());
        cpu::cross_entropy_backward<double>(std::span<const double>(lp64), t, widen(g), dx64);
        CHECK(distance(dx.host(), narrow(dx64)) < 1e-6);
        cuda::nll_backward<float>(on_device, g_.view().first(1), dx.span());
        cpu::nll_backward<double>(t, std::span<const double>(widen(g)).first(1), dx64);
        CHECK(distance(dx.host(), narrow(dx64)) < 1e-6);
      }
}

namespace {

// Losses, dx and statistics of cross entropy on the device. in_place: dx overwrites x.
template <class T>
struct CrossEntropy {
  std::vector<T> losses, dx;
  std::vector<LogSum<T>> statistics;
};
template <class T>
CrossEntropy<T> cross_entropy_of(const std::vector<T>& x, const Targets& t,
                                 const std::vector<T>& row_grad, std::size_t offset,
                                 bool in_place) {
  const OnDevice<T> x_(x, offset), other(x.size(), offset), losses(t.index.size(), 1),
      row_grad_(row_grad, 1);
  const OnDevice<LogSum<T>> statistics(t.index.size());
  const OnDevice<T>& dx = in_place ? x_ : other;
  cuda::cross_entropy_rows<T>(x_.view(), t, losses.span(), statistics.span());
  cuda::cross_entropy_rows_backward<T>(x_.view(), statistics.view(), t, row_grad_.view(),
                                       dx.span());
  if (!in_place) REQUIRE(same_bits(x_.host(), x));
  return {losses.host(), dx.host(), statistics.host()};
}

}  // namespace

TEMPLATE_TEST_CASE("cross entropy from the logits: the bits of log_softmax and its loss",
                   "[cuda][cross_entropy]", float, double) {
  using T = TestType;
  for (const std::int64_t classes : {1, 2, 17, 512, 513, 1030, 2049, 4096, 4097, 5003, 6001, 9216})
    for (const std::size_t offset : {0, 1})
      for (const double smoothing : {0.0, 0.1}) {
        if (smoothing != 0 && offset != 0) continue;
        INFO("classes " << classes << ", offset " << offset << ", smoothing " << smoothing);
        const std::int64_t n = classes < 100 ? 37 : 5;
        const auto logits = random_values(n * classes, 5, 3), grads = random_values(n, 6);
        const std::vector<T> x(logits.begin(), logits.end()), g(grads.begin(), grads.end());
        std::vector<std::int64_t> index;
        for (std::int64_t i = 0; i < n; ++i)
          index.push_back(i % 4 == 1 ? -100 : (classes - 1 + 7 * i) % classes);
        const OnDevice<std::int64_t> index_(index);
        const Targets t{index, classes, -100, smoothing},
            on_device{index_.view(), classes, -100, smoothing};
        const auto got = cross_entropy_of<T>(x, on_device, g, offset, false);

        // Runs the separate kernels, which store log-probabilities in memory.
        const OnDevice<T> x_(x, offset), lp(x.size(), offset), losses(g.size()), g_(g),
            dx(x.size(), offset);
        cuda::log_softmax<T>(x_.view(), lp.span(), {n, classes, 1});
        cuda::nll_rows<T>(lp.view(), on_device, losses.span());
        cuda::cross_entropy_backward<T>(lp.view(), on_device, g_.view(), dx.span());
        if (smoothing == 0) REQUIRE(same_bits(got.losses, losses.host()));
        REQUIRE(same_bits(got.dx, dx.host()));

        std::vector<double> losses64(g.size()), dx64(x.size());
        std::vector<LogSum<double>> statistics64(g.size());
        const std::vector<double> x64(x.begin(), x.end()), g64(g.begin(), g.end());
        cpu::cross_entropy_rows<double>(x64, t, losses64, statistics64);
        cpu::cross_entropy_rows_backward<double>(x64, statistics64, t, g64, dx64);
        const double most = std::is_same_v<T, float> ? 1e-6 : 1e-13;  // the oracle sums serially
        for (std::size_t i = 0; i < losses64.size(); ++i) {
          REQUIRE(std::abs(double{got.losses[i]} - losses64[i]) <=
                  most * std::max(1.0, std::abs(losses64[i])));
          REQUIRE(double{got.statistics[i].largest} == statistics64[i].largest);
          REQUIRE(std::abs(double{got.statistics[i].log_sum} - statistics64[i].log_sum) <=
                  most * std::max(1.0, statistics64[i].log_sum));
        }
        for (std::size_t i = 0; i < dx64.size(); ++i)
          REQUIRE(std::abs(double{got.dx[i]} - dx64[i]) <= most);

        const auto in_place = cross_entropy_of<T>(x, on_device, g, offset, true);
        REQUIRE(same_bits(in_place.dx, got.dx));
        const auto one = cross_entropy_of<T>(x, on_device, {g[0]}, offset, false);
        REQUIRE(std::equal(one.dx.begin(), one.dx.begin() + classes, got.dx.begin()));
      }
}

TEST_CASE("cross entropy from the logits: -inf, NaN, infinite, bad and ignored rows",
          "[cuda][cross_entropy]") {
  for (const std::int64_t classes : {8, 600, 5000}) {
    const auto n = static_cast<std::size_t>(classes);
    std::vector<float> x(8 * n, -1.0F);
    const auto row = [&](std::size_t r) { return x.begin() + static_cast<std::ptrdiff_t>(r * n); };
    std::fill(row(0) + 1, row(1), -kInf);  // all except the target
    row(1)[5] = kNaN;
    row(2)[n - 1] = kInf;
    std::fill(row(3), row(4), -kInf);
    row(4)[3] = kNaN;  // ignored
    row(5)[n - 1] = 1e30F;
    const OnDevice<std::int64_t> index(
        // The last two targets are invalid.
        std::vector<std::int64_t>{0, 0, 0, 0, -1, classes - 1, classes, -7});
    const auto got = cross_entropy_of<float>(x, {index.view(), classes, -1},
                                             std::vector<float>(8, 1.0F), 0, false);
    CHECK(got.losses[0] == 0.0F);
    CHECK(got.losses[4] == 0.0F);
    CHECK(got.losses[5] == 0.0F);
    for (const std::size_t r : {1, 2, 3, 6, 7}) CHECK(std::isnan(got.losses[r]));
    for (std::size_t i = 0; i < n; ++i) {
      REQUIRE(got.dx[i] == 0.0F);
      for (const std::size_t r : {1, 2, 3}) REQUIRE(std::isnan(got.dx[r * n + i]));
      for (const std::size_t r : {4, 5}) REQUIRE(got.dx[r * n + i] == 0.0F);
      for (const std::size_t r : {6, 7})  // as if no class were the target
        REQUIRE(std::abs(got.dx[r * n + i] * static_cast<float>(n) - 1) < 1e-5F);
    }
  }
  const std::span<const float> none;
  cuda::cross_entropy_rows<float>(none, {{}, 5}, {}, {});
  cuda::cross_entropy_rows_backward<float>(none, {}, {{}, 5}, none, {});
}

TEST_CASE("a batch of ignored targets on a device has the mean 0 / 0", "[cuda]") {
  const OnDevice<std::int64_t> index(std::vector<std::int64_t>(5, -100));
  const OnDevice<float> losses(std::vector<float>(5, 0.0F)), loss(1), divisor(1);
  cuda::reduce_losses<float>(losses.view(), {index.view(), 3}, true, loss.span(), divisor.span());
  CHECK(std::isnan(loss.host()[0]));
  CHECK(divisor.host()[0] == 0.0F);
}

TEST_CASE("a target outside the classes is the same error on a device as on the CPU", "[cuda]") {
  std::vector<std::int64_t> index(3000, -100);
  index[1234] = 7;
  index[2345] = -1;
  const OnDevice<std::int64_t> index_(index);
  const std::string want =
      "cross_entropy: target 7 of row 1234 is outside [0, 7) and is not "
      "ignore_index (-100)";
  cuda::check_targets("cross_entropy", {index_.view(), 7});
  CHECK_THROWS_WITH(synchronize(current_device()), want);
  CHECK_THROWS_WITH(cpu::check_targets("cross_entropy", {index, 7}), want);
  cuda::check_targets("cross_entropy", {index_.view(), 8});
  CHECK_THROWS_AS(synchronize(current_device()), UsageError);  // target -1
  for (const double smoothing : {0.0, 0.1}) {                  // nothing outside the row is read
    const OnDevice<float> log_probs(std::vector<float>(3000 * 7, -1.0F)), losses(3000);
    cuda::nll_rows<float>(log_probs.view(), {index_.view(), 7, -100, smoothing}, losses.span());
    const auto got = losses.host();
    CHECK((std::isnan(got[1234]) && std::isnan(got[2345]) && got[0] == 0.0F));
  }
}

TEST_CASE("squared error on a device and its gradients", "[cuda]") {
  for (const std::int64_t n : {0, 1, 7, 127, 4096, 40'001})
    for (const std::size_t offset : {0, 1}) {
      const auto size = static_cast<std::size_t>(n);
      const auto a = random_values(n, 1), b = random_values(n, 2), g = random_values(n, 3);
      const OnDevice<float> x(a, offset), y(b, offset), g_(g), loss(1), dx(size), dy(size);
      std::vector<double> want(1);
      cuda::squared_error<float>(x.view(), y.view(), 3.0, loss.span());
      cpu::squared_error<double>(widen(a), widen(b), 3.0, want);
      CHECK(distance(loss.host(), narrow(want)) < 1e-6);
      if (n == 1) continue;
      cuda::squared_error_backward<float>(x.view(), y.view(), 0.5F, g_.view(), dx.span(),
                                          dy.span());
      std::vector<float> want_dx(size), want_dy(size);
      cpu::squared_error_backward<float>(a, b, 0.5F, g, want_dx, want_dy);
      CHECK(dx.host() == want_dx);
      CHECK(dy.host() == want_dy);
      cuda::squared_error_backward<float>(x.view(), y.view(), 0.5F, g_.view(), {}, dy.span());
      CHECK(dy.host() == want_dy);
    }
}
