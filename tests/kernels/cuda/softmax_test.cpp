// softmax, log_softmax and the losses on a device against float64, and what must happen at the
// edges.
#include "kernels/softmax.hpp"

#include <cmath>
#include <limits>

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
        // In place, with the same bits.
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
  CHECK_THROWS_AS(synchronize(current_device()), UsageError);  // -1
  for (const double smoothing : {0.0, 0.1}) {                  // and nothing outside is read: NaN
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
