// The classifier of a language model: cross entropy of 16-bit logits in padded rows, and the
// gradient over the logits, compared with float64.
#include <array>
#include <cmath>
#include <limits>

#include "kernels/loss.hpp"
#include "tests/kernels/cuda/support.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
using namespace ringsmith::kernels;

namespace {

constexpr std::int64_t kIgnored = -100;

template <class S>
struct Answer {
  std::vector<Wide<S>> losses;
  std::vector<S> dx;
};

// x (rows, width). One gradient for all rows or, if row_grad has more elements, one per row.
template <class S>
Answer<S> on_device(const std::vector<S>& x, const Targets& t, const std::vector<Wide<S>>& row_grad,
                    std::size_t offset, bool in_place) {
  using W = Wide<S>;
  const std::size_t rows = t.index.size();
  const OnDevice<S> x_(x, offset), other(x.size(), offset);
  const OnDevice<std::int64_t> index({t.index.begin(), t.index.end()});
  const OnDevice<W> losses(rows), g(row_grad);
  const OnDevice<LogSum<W>> statistics(rows);
  const Targets targets{index.view(), t.classes, t.ignore_index, t.smoothing};
  cuda::cross_entropy_rows<S>(x_.view(), targets, losses.span(), statistics.span());
  const OnDevice<S>& dx = in_place ? x_ : other;
  cuda::cross_entropy_rows_backward<S>(x_.view(), statistics.view(), targets, g.view(), dx.span());
  return {losses.host(), dx.host()};
}

template <class S>
double as_double(S x) {
  return static_cast<double>(static_cast<Wide<S>>(x));
}

// The largest relative error of a rounding, 2^-p with p bits; and half of the smallest step.
template <class S>
constexpr double kRounding = std::is_same_v<S, bf16>  ? 0x1p-8
                             : std::is_same_v<S, f16> ? 0x1p-11
                                                      : 0x1p-24;
template <class S>
constexpr double kStep = std::is_same_v<S, f16> ? 0x1p-25 : 1e-38;

template <class S>
void check(std::int64_t rows, std::int64_t classes, std::int64_t width, double smoothing) {
  std::vector<S> x;
  for (const float v : random_values(rows * width, 1, 3)) x.push_back(S(v));
  std::vector<double> wide;
  std::vector<std::int64_t> index;
  for (std::int64_t r = 0; r < rows; ++r) {
    index.push_back(r % 5 == 3 ? kIgnored : (r * 7919) % classes);
    for (std::int64_t c = 0; c < width; ++c) {
      S& v = x[static_cast<std::size_t>(r * width + c)];
      if (c >= classes) v = S(std::nanf(""));  // padding must not be used
      if (c < classes && r % 4 == 2 && c % 3 == 1 && c != index.back())
        v = S(-std::numeric_limits<float>::infinity());
      if (c < classes) wide.push_back(as_double(v));
    }
  }
  const Targets t{index, classes, kIgnored, smoothing};
  const auto n = static_cast<std::size_t>(rows);
  std::vector<Wide<S>> g;
  std::vector<double> wide_g;
  for (std::size_t r = 0; r < n; ++r) g.push_back(static_cast<Wide<S>>(0.25 + double(r % 3)));
  for (const auto v : g) wide_g.push_back(double{v});
  std::vector<double> losses(n), dx(wide.size());
  std::vector<LogSum<double>> statistics(n);
  cpu::cross_entropy_rows<double>(wide, t, losses, statistics);
  cpu::cross_entropy_rows_backward<double>(wide, statistics, t, wide_g, dx);
  for (const std::size_t offset : {0, 1})
    for (const bool in_place : {false, true}) {
      INFO(rows << " x " << classes << " in " << width << ", smoothing " << smoothing << ", offset "
                << offset << ", in place " << in_place);
      const Answer<S> got = on_device(x, t, g, offset, in_place);
      for (std::size_t r = 0; r < n; ++r) {
        if (std::isfinite(losses[r]))  // smoothing over -inf gives inf
          REQUIRE(std::abs(double{got.losses[r]} - losses[r]) <= 2e-6 * (8 + std::abs(losses[r])));
        else
          REQUIRE(double{got.losses[r]} == losses[r]);
        for (std::int64_t c = 0; c < width; ++c) {
          const double d =
              as_double(got.dx[r * static_cast<std::size_t>(width) + static_cast<std::size_t>(c)]);
          if (c >= classes) {
            REQUIRE(d == 0);
            continue;
          }
          const double want =
              dx[r * static_cast<std::size_t>(classes) + static_cast<std::size_t>(c)];
          // Rounded once, from a float whose error is that of the exponential and of p - 1.
          REQUIRE(std::abs(d - want) <=
                  kRounding<S> * std::abs(want) * 1.01 + 4e-6 * wide_g[r] + kStep<S>);
        }
      }
    }
}

}  // namespace

TEMPLATE_TEST_CASE("cross entropy of padded logits on a device agrees with float64",
                   "[cuda][classifier]", bf16, f16, float) {
  using Shape3 = std::array<std::int64_t, 3>;
  for (const Shape3& s : std::vector<Shape3>{{0, 3, 8},
                                             {3, 1, 1},
                                             {3, 1, 8},
                                             {9, 2, 2},
                                             {9, 7, 8},
                                             {6, 509, 512},
                                             {6, 512, 512},
                                             {6, 513, 640},
                                             {5, 4095, 4096},
                                             {5, 4097, 4104},
                                             {5, 4099, 4101},
                                             {2, 50'257, 50'304},
                                             {2, 50'257, 50'257}})
    for (const double smoothing : {0.0, 0.1})
      if (s[1] < 10'000 || smoothing == 0) check<TestType>(s[0], s[1], s[2], smoothing);
}

TEMPLATE_TEST_CASE("padded logits: NaN, infinities, labels outside of the classes",
                   "[cuda][classifier]", bf16, f16) {
  using S = TestType;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::int64_t classes : {5, 600, 5001}) {
    const std::int64_t width = (classes + 63) / 64 * 64;
    const auto at = [=](std::int64_t r, std::int64_t c) {
      return static_cast<std::size_t>(r * width + c);
    };
    std::vector<S> x(static_cast<std::size_t>(8 * width), S(0.5F));
    for (std::int64_t r = 0; r < 8; ++r)
      for (std::int64_t c = classes; c < width; ++c) x[at(r, c)] = S(kInfinity);
    x[at(0, 2)] = S(std::nanf(""));
    x[at(1, 2)] = S(kInfinity);
    for (std::int64_t c = 0; c < classes; ++c) x[at(2, c)] = S(-kInfinity);
    x[at(3, 1)] = S(-kInfinity);  // the target: an infinite loss and a finite gradient
    const std::vector<std::int64_t> index{1, 1, 1, 1, classes, -1, kIgnored, classes - 1};
    const Targets t{index, classes, kIgnored, 0};
    const std::vector<float> g{0.5F};
    for (const bool in_place : {false, true}) {
      INFO(classes << " in " << width << ", in place " << in_place);
      const Answer<S> got = on_device(x, t, g, 0, in_place);
      for (const std::size_t r : {0, 1, 2, 4, 5}) CHECK(std::isnan(got.losses[r]));
      CHECK(got.losses[3] == kInfinity);
      CHECK(got.losses[6] == 0);
      CHECK(got.losses[7] == Approx(std::log(double(classes))).epsilon(1e-6));
      for (std::int64_t c = 0; c < width; ++c) {
        for (const std::int64_t r : {0, 1, 2})
          CHECK(std::isnan(as_double(got.dx[at(r, c)])) == (c < classes));
        const double p = c < classes ? 0.5 / double(classes) : 0;
        const double near = c == 1 ? -0.5 : c < classes ? 0.5 / double(classes - 1) : 0;
        CHECK(as_double(got.dx[at(3, c)]) == Approx(near).epsilon(kRounding<S>).margin(kStep<S>));
        CHECK(as_double(got.dx[at(4, c)]) == Approx(p).epsilon(kRounding<S>).margin(kStep<S>));
        CHECK(as_double(got.dx[at(6, c)]) == 0);
      }
    }
  }
}
