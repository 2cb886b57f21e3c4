// Compares fast batch normalisation with the oracle, and the oracle with the definition.
#include "kernels/batchnorm.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/mode.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::kernels;

namespace {

template <class T>
std::vector<T> random_values(std::size_t n, unsigned seed, double shift = 0) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> d;
  std::vector<T> v(n);
  for (T& e : v) e = static_cast<T>(d(engine) + shift);
  return v;
}

template <class T>
struct Result {
  std::vector<T> mean, squares, y, dx, dweight, dbias;
};

template <class T>
Result<T> run(const BatchNormShape& s, double shift, bool batch_statistics, Mode mode) {
  set_mode(mode);
  const auto n = static_cast<std::size_t>(s.n * s.c * s.pixels);
  const auto c = static_cast<std::size_t>(s.c);
  const auto x = random_values<T>(n, 1, shift), dy = random_values<T>(n, 2);
  const auto weight = random_values<T>(c, 3), bias = random_values<T>(c, 4);
  const std::vector<T> blank(c);
  Result<T> r{blank, blank, std::vector<T>(n), std::vector<T>(n), blank, blank};
  cpu::batch_stats<T>(s, x, r.mean, r.squares);
  std::vector<T> inv_std = r.squares;
  cpu::inverse_std<T>(inv_std, static_cast<double>(s.per_channel()), 1e-5);
  cpu::batch_norm<T>(s, x, r.mean, inv_std, weight, bias, r.y);
  cpu::batch_norm_grad<T>(s, dy, x, r.mean, inv_std, weight, batch_statistics, r.dx, r.dweight,
                          r.dbias);
  set_mode(Mode::fast);
  return r;
}

template <class T>
double distance(const std::vector<T>& a, const std::vector<T>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= worst)) worst = std::isnan(d) ? HUGE_VAL : d;
  }
  return worst;
}

}  // namespace

TEST_CASE("fast batch normalisation stays within rounding of the oracle") {
  for (const BatchNormShape& s : std::vector<BatchNormShape>{
           {1, 1, 2}, {6, 5, 1}, {3, 7, 13}, {2, 3, 64}, {17, 33, 1}, {4, 2, 1001}})
    for (const bool training : {true, false}) {
      INFO(s.n << " x " << s.c << " x " << s.pixels << (training ? " training" : " evaluation"));
      const auto fast = run<float>(s, 0, training, Mode::fast);
      const auto slow = run<float>(s, 0, training, Mode::oracle);
      CHECK(distance(fast.mean, slow.mean) <= 1e-7);
      CHECK(distance(fast.squares, slow.squares) <= 1e-6 * static_cast<double>(s.per_channel()));
      CHECK(distance(fast.y, slow.y) <= 4e-6);
      CHECK(distance(fast.dx, slow.dx) <= 2e-5);
      // The fast version sums in double, the oracle in eight float lanes per image.
      const double lane = static_cast<double>(s.pixels) / 8;
      const double rounding = std::max(1e-5, lane * std::sqrt(lane) * 1e-7);
      CHECK(distance(fast.dweight, slow.dweight) <= std::max(1e-4, rounding));
      CHECK(distance(fast.dbias, slow.dbias) <= rounding);
      CHECK(distance(run<double>(s, 0, training, Mode::fast).dx,
                     run<double>(s, 0, training, Mode::oracle).dx) <= 1e-12);
    }
}

TEST_CASE("running statistics take in what is finite, channel by channel, and nothing else") {
  constexpr double kInf = std::numeric_limits<double>::infinity(),
                   kNan = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {kInf, -kInf, kNan}) {
    std::vector<double> mean{1, 2, 3}, var{4, 5, 6};
    const std::vector<double> of_batch{10, bad, 10}, squares{7, 7, bad};
    cpu::update_running<double>(mean, var, of_batch, squares, 8, 0.5);  // a variance of 7 / (8 - 1)
    CHECK(mean == std::vector<double>{5.5, 2, 3});
    CHECK(var == std::vector<double>{2.5, 5, 6});
  }
}

TEST_CASE("a mean a thousand times the deviation does not eat the variance") {
  for (const Mode mode : {Mode::fast, Mode::oracle}) {
    const auto r = run<float>({8, 2, 500}, 1000, true, mode);
    for (const float v : r.squares) CHECK(std::abs(v / 4000 - 1) < 0.1);
    const auto exact = run<double>({8, 2, 500}, 1000, true, Mode::oracle);
    CHECK(std::abs(r.squares[0] - exact.squares[0]) / 4000 < 1e-4);
  }
}

TEST_CASE("the training gradient of x is orthogonal to a shift and to a scaling of x") {
  // Shifting or scaling x does not change y, so moving x in either direction must not change the
  // loss.
  const BatchNormShape s{5, 3, 7};
  const auto x = random_values<double>(105, 1);
  for (const Mode mode : {Mode::fast, Mode::oracle}) {
    const auto r = run<double>(s, 0, true, mode);
    for (std::size_t c = 0; c < 3; ++c) {
      double along_shift = 0, along_scale = 0;
      for (std::size_t n = 0; n < 5; ++n)
        for (std::size_t p = 0; p < 7; ++p) {
          const std::size_t i = (n * 3 + c) * 7 + p;
          along_shift += r.dx[i];
          along_scale += r.dx[i] * (x[i] - r.mean[c]);
        }
      CHECK(std::abs(along_shift) < 1e-12);
      CHECK(std::abs(along_scale) < 1e-3);  // exact except for eps
    }
  }
}
