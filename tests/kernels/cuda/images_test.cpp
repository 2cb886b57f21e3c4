// Compares pooling and batch normalisation on a device with the CPU's oracles.
#include <cmath>
#include <limits>

#include "kernels/batchnorm.hpp"
#include "kernels/pool.hpp"
#include "tests/kernels/cuda/support.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
using namespace ringsmith::kernels;

namespace {

template <class T>
std::vector<T> values(std::int64_t n, unsigned seed, float shift = 0) {
  std::vector<T> v;
  for (const float x : random_values(n, seed)) v.push_back(static_cast<T>(x + shift));
  return v;
}

template <class T>
void compare_pool(const Pool2dShape& s) {
  const std::int64_t outputs = s.planes * s.out_h() * s.out_w();
  auto x = values<T>(s.planes * s.h * s.w, 1);
  for (T& v : x) v = std::round(v * 2);  // produces ties
  if (x.size() > 5) x[5] = std::numeric_limits<T>::quiet_NaN();
  const auto dy = values<T>(outputs, 2);
  const auto n = static_cast<std::size_t>(outputs);
  const OnDevice<T> x_(x), dy_(dy), y(n), dx(x.size());
  const OnDevice<std::int32_t> index(n);
  std::vector<T> want_y(n), want_dx(x.size());
  std::vector<std::int32_t> want_index(n);
  const ModeScope oracle(Mode::oracle);
  cuda::max_pool2d<T>(s, x_.view(), y.span(), index.span());
  cpu::max_pool2d<T>(s, x, want_y, want_index);
  CHECK(same_bits(y.host(), want_y));
  CHECK(index.host() == want_index);
  cuda::max_pool2d_grad<T>(s, dy_.view(), index.view(), dx.span());
  cpu::max_pool2d_grad<T>(s, dy, want_index, want_dx);
  CHECK(dx.host() == want_dx);
  cuda::avg_pool2d<T>(s, x_.view(), y.span());
  cpu::avg_pool2d<T>(s, x, want_y);
  CHECK(same_bits(y.host(), want_y));
  cuda::avg_pool2d_grad<T>(s, dy_.view(), dx.span());
  cpu::avg_pool2d_grad<T>(s, dy, want_dx);
  CHECK(dx.host() == want_dx);
}

template <class T>
void compare_batch_norm(const BatchNormShape& s, bool training, float shift, double tolerance) {
  const std::int64_t n = s.n * s.c * s.pixels;
  const auto c = static_cast<std::size_t>(s.c);
  const auto x = values<T>(n, 1, shift), dy = values<T>(n, 2), weight = values<T>(s.c, 3),
             bias = values<T>(s.c, 4);
  const OnDevice<T> x_(x, 1), dy_(dy), weight_(weight), bias_(bias), mean(c), var(c), y(x.size()),
      dx(x.size()), dweight(c), dbias(c), running_mean(weight), running_var(bias);
  // For float the oracle rounds as PyTorch does: a large mean cancels the last digits of x alpha +
  // beta, and lanes and images of one pixel are added in float. The device is more exact, so it is
  // compared with the oracle for double, given statistics that are rounded to T.
  const auto wide = [](const std::vector<T>& v) { return std::vector<double>(v.begin(), v.end()); };
  const auto narrow = [](const std::vector<double>& v) {
    return std::vector<T>(v.begin(), v.end());
  };
  std::vector<double> want_mean(c), want_var(c), want(x.size()), want_dweight(c), want_dbias(c),
      want_running_mean(wide(weight)), want_running_var(wide(bias));
  const auto count = static_cast<double>(s.per_channel());
  const auto near = [&](const OnDevice<T>& got, const std::vector<double>& expected) {
    const auto host = got.host();
    const auto rounded = narrow(expected);
    for (std::size_t i = 0; i < host.size(); ++i)
      REQUIRE(std::abs(static_cast<double>(host[i] - rounded[i])) <=
              tolerance * std::max(1.0, std::abs(expected[i])));
  };
  const auto round = [&](std::vector<double>& v) { v = wide(narrow(v)); };
  const ModeScope oracle(Mode::oracle);
  cuda::batch_stats<T>(s, x_.view(), mean.span(), var.span());
  cpu::batch_stats<double>(s, wide(x), want_mean, want_var);
  near(mean, want_mean);
  near(var, want_var);
  round(want_mean);
  round(want_var);
  cuda::update_running<T>(running_mean.span(), running_var.span(), mean.view(), var.view(), count,
                          0.1);
  cpu::update_running<double>(want_running_mean, want_running_var, want_mean, want_var, count, 0.1);
  near(running_mean, want_running_mean);
  near(running_var, want_running_var);
  cuda::inverse_std<T>(var.span(), count, 1e-5);
  cpu::inverse_std<double>(want_var, count, 1e-5);
  near(var, want_var);
  round(want_var);
  cuda::batch_norm<T>(s, x_.view(), mean.view(), var.view(), weight_.view(), bias_.view(),
                      y.span());
  cpu::batch_norm<double>(s, wide(x), want_mean, want_var, wide(weight), wide(bias), want);
  near(y, want);
  cuda::batch_norm_grad<T>(s, dy_.view(), x_.view(), mean.view(), var.view(), weight_.view(),
                           training, dx.span(), dweight.span(), dbias.span());
  cpu::batch_norm_grad<double>(s, wide(dy), wide(x), want_mean, want_var, wide(weight), training,
                               want, want_dweight, want_dbias);
  near(dx, want);
  near(dweight, want_dweight);
  near(dbias, want_dbias);
}

}  // namespace

TEMPLATE_TEST_CASE("pooling on a device has the oracle's bits", "[cuda]", float, double) {
  for (const Pool2dShape& s : std::vector<Pool2dShape>{
           {.planes = 1, .h = 1, .w = 1, .kh = 1, .kw = 1},
           {.planes = 6, .h = 8, .w = 8, .kh = 2, .kw = 2, .stride_h = 2, .stride_w = 2},
           {.planes = 3,
           .h = 9,
           .w = 7,
           .kh = 3,
           .kw = 3,
           .stride_h = 2,
           .stride_w = 2,
           .pad_h = 1,
           .pad_w = 1},
           {.planes = 2,
           .h = 7,
           .w = 10,
           .kh = 3,
           .kw = 2,
           .stride_h = 1,
           .stride_w = 3,
           .pad_h = 1,
           .pad_w = 1,
           .count_include_pad = false},
           {.planes = 4, .h = 5, .w = 5, .kh = 2, .kw = 3, .stride_h = 4, .stride_w = 4},
           {.planes = 5, .h = 6, .w = 6, .kh = 6, .kw = 6},
           {.planes = 0, .h = 4, .w = 4, .kh = 2, .kw = 2}})
    compare_pool<TestType>(s);
}

TEST_CASE("batch normalisation on a device stays within rounding of the oracle", "[cuda]") {
  for (const BatchNormShape& s : std::vector<BatchNormShape>{
           {1, 1, 2}, {6, 5, 1}, {3, 7, 13}, {2, 3, 64}, {300, 33, 1}, {4, 2, 5001}})
    for (const bool training : {true, false}) {
      compare_batch_norm<float>(s, training, 0, 2e-6);
      compare_batch_norm<double>(s, training, 0, 1e-11);
      // The mean is a thousand times the deviation, but the variance must still be accurate.
      compare_batch_norm<float>(s, training, 1000, 2e-4);
    }
}
