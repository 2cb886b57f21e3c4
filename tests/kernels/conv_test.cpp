// Compares fast convolution with the oracle's loops, whose sums must have the documented order.
#include "kernels/conv.hpp"

#include <cmath>
#include <random>
#include <vector>

#include "kernels/mode.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::kernels;

namespace {

// Returns small multiples of 1/8, so that every sum below is exact in float and all orders agree.
std::vector<float> dyadic(std::int64_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int> d(-16, 16);
  std::vector<float> v(static_cast<std::size_t>(n));
  for (float& e : v) e = static_cast<float>(d(engine)) / 8;
  return v;
}

std::vector<Conv2dShape> shapes() {
  return {
      {1, 1, 1, 1, 1, 1, 1},                       // one multiplication
      {2, 3, 7, 5, 4, 3, 3, 1, 1, 1, 1},           // the usual 3x3
      {2, 4, 8, 9, 6, 1, 1},                       // 1x1
      {2, 4, 8, 9, 6, 1, 1, 2, 2},                 // 1x1 with a stride
      {3, 2, 9, 7, 3, 3, 2, 2, 1, 0, 2},           // different in height and width
      {1, 2, 9, 10, 2, 3, 3, 1, 1, 2, 2, 2, 2},    // dilated
      {2, 6, 6, 7, 4, 2, 3, 1, 2, 1, 1, 1, 1, 2},  // groups
      {2, 4, 5, 5, 4, 3, 3, 1, 1, 1, 1, 1, 1, 4},  // depthwise
      {1, 2, 3, 3, 2, 3, 3, 1, 1, 3, 3},           // windows that cover only padding
      {2, 2, 4, 11, 3, 2, 3, 3, 3, 1, 4, 1, 2},    // strides, padding and dilation
      {0, 2, 4, 4, 3, 3, 3, 1, 1, 1, 1},           // an empty batch
      {1, 16, 17, 19, 32, 3, 3, 2, 2, 1, 1},
      {3, 48, 16, 16, 8, 3, 3, 1, 1, 1, 1},  // rows of one vector
      {9, 50, 4, 4, 7, 3, 3, 1, 1, 1, 1},    // a sample of one vector, with shorter rows
      {2, 3, 5, 65, 9, 3, 3, 1, 1, 1, 1},    // rows longer than a panel
      {1, 2, 3, 400, 65, 1, 3, 1, 1, 0, 1},  // long rows, and more pixels than a pass of dw
      {1, 99, 3, 65, 99, 4, 3, 1, 1, 1, 1},  // 1188 taps, which y and dx take in two passes
  };
}

struct Result {
  std::vector<float> y, plain, dx, dw, db;
  bool operator==(const Result&) const = default;
};

Result run(const Conv2dShape& s, Mode mode) {
  set_mode(mode);
  const auto x = dyadic(s.n * s.c * s.h * s.w, 1), w = dyadic(s.out_c * s.taps(), 2),
             b = dyadic(s.out_c, 3), dy = dyadic(s.n * s.out_c * s.out_pixels(), 4);
  const auto garbage = [](std::size_t n) { return std::vector<float>(n, 1e30F); };
  Result r{garbage(dy.size()), garbage(dy.size()), garbage(x.size()), garbage(w.size()),
           garbage(b.size())};
  cpu::conv2d<float>(s, x, w, b, r.y);
  cpu::conv2d<float>(s, x, w, {}, r.plain);
  cpu::conv2d_grad_input<float>(s, dy, w, r.dx);
  cpu::conv2d_grad_weight<float>(s, dy, x, r.dw);
  cpu::conv2d_grad_bias<float>(s, dy, r.db);
  set_mode(Mode::fast);
  return r;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

}  // namespace

TEST_CASE("fast convolution and its gradients equal the loops where every sum is exact") {
  for (const Conv2dShape& s : shapes()) {
    INFO(s.n << "x" << s.c << "x" << s.h << "x" << s.w << " kernel " << s.kh << "x" << s.kw);
    const Result fast = run(s, Mode::fast), slow = run(s, Mode::oracle);
    CHECK(fast.y == slow.y);
    CHECK(fast.plain == slow.plain);
    CHECK(fast.dx == slow.dx);
    CHECK(fast.dw == slow.dw);
    CHECK(fast.db == slow.db);
  }
}

TEST_CASE("convolution on threads has the same values") {
  const Conv2dShape s{2, 8, 33, 31, 6, 3, 3, 1, 1, 1, 1};
  const Result one = run(s, Mode::fast);
  set_threads(3);
  const Result three = run(s, Mode::fast);
  set_threads(1);
  CHECK(one == three);
}

TEST_CASE("the gradients are the transposes of the convolution: <dy, conv(x, w)> read three ways") {
  for (const Conv2dShape& s : shapes()) {
    const auto x = dyadic(s.n * s.c * s.h * s.w, 1), w = dyadic(s.out_c * s.taps(), 2),
               dy = dyadic(s.n * s.out_c * s.out_pixels(), 4);
    const Result r = run(s, Mode::oracle);
    CHECK(dot(dy, r.plain) == dot(r.dx, x));
    CHECK(dot(dy, r.plain) == dot(r.dw, w));
  }
}

TEST_CASE("a convolution by hand") {
  // 1 2 3       kernel 1 0    windows 1+5 2+6     plus the bias 10
  // 4 5 6              0 1            4+8 5+9
  // 7 8 9
  const std::vector<float> x{1, 2, 3, 4, 5, 6, 7, 8, 9}, w{1, 0, 0, 1}, b{10};
  for (const Mode mode : {Mode::fast, Mode::oracle}) {
    set_mode(mode);
    std::vector<float> y(4);
    cpu::conv2d<float>({1, 1, 3, 3, 1, 2, 2}, x, w, b, y);
    CHECK(y == std::vector<float>{16, 18, 22, 24});
  }
  set_mode(Mode::fast);
}

TEST_CASE("the oracle adds in the documented order: bias first, then ascending taps") {
  set_mode(Mode::oracle);
  // 2^24 + 1 rounds back to 2^24, so the order decides: (2^24 + 1) - 2^24 = 0, not 1.
  const std::vector<float> x{1, -16777216}, w{1, 1}, b{16777216};
  std::vector<float> y(1);
  cpu::conv2d<float>({1, 2, 1, 1, 1, 1, 1}, x, w, b, y);
  CHECK(y[0] == 0);
  // dw is one product per sample, starting from zero, and the samples are added in order. 1 + 2^24
  // is rounded only between samples.
  const std::vector<float> dy{1, 16777216, -16777216}, ones{1, 1, 1};
  std::vector<float> dw(1);
  cpu::conv2d_grad_weight<float>({3, 1, 1, 1, 1, 1, 1}, dy, ones, dw);
  CHECK(dw[0] == 0);
  set_mode(Mode::fast);
}
