// The fast pooling versions add and compare in the oracle's order, so they must agree bit for bit.
#include "kernels/pool.hpp"

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/mode.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::kernels;

namespace {

std::vector<float> random_values(std::size_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int> d(-8, 8);  // produces ties
  std::vector<float> v(n);
  for (float& e : v) e = static_cast<float>(d(engine)) * 0.37F;
  return v;
}

std::vector<Pool2dShape> shapes() {
  std::vector<Pool2dShape> all;
  for (const std::int64_t h : {3, 7, 8})
    for (const std::int64_t w : {3, 16, 33})
      for (const std::int64_t kh : {1, 2, 3})
        for (const std::int64_t kw : {1, 2, 3})
          for (const std::int64_t stride : {1, 2, 3})
            for (const bool count_pad : {true, false})
              all.push_back(
                  {3, h, w, kh, kw, stride, stride == 3 ? 2 : stride, kh / 2, kw / 2, count_pad});
  return all;
}

struct Result {
  std::vector<float> y, dx, avg, davg;
  std::vector<std::int32_t> index;
  bool operator==(const Result&) const = default;
};

Result run(const Pool2dShape& s, const std::vector<float>& x, Mode mode) {
  set_mode(mode);
  const auto outputs = static_cast<std::size_t>(s.planes * s.out_h() * s.out_w());
  Result r{std::vector<float>(outputs), std::vector<float>(x.size()), std::vector<float>(outputs),
           std::vector<float>(x.size()), std::vector<std::int32_t>(outputs)};
  const std::vector<float> dy = random_values(outputs, 9);
  cpu::max_pool2d<float>(s, x, r.y, r.index);
  cpu::max_pool2d_grad<float>(s, dy, r.index, r.dx);
  cpu::avg_pool2d<float>(s, x, r.avg);
  cpu::avg_pool2d_grad<float>(s, dy, r.davg);
  set_mode(Mode::fast);
  return r;
}

}  // namespace

TEST_CASE("fast pooling has the oracle's bits, gradients and winners of ties included") {
  int cases = 0;
  for (const Pool2dShape& s : shapes()) {
    INFO(s.h << "x" << s.w << " window " << s.kh << "x" << s.kw << " stride " << s.stride_h);
    const auto x = random_values(static_cast<std::size_t>(s.planes * s.h * s.w), 1);
    CHECK(run(s, x, Mode::fast) == run(s, x, Mode::oracle));
    ++cases;
  }
  CHECK(cases == 486);
}

TEST_CASE("pooling on threads has the same bits") {
  const Pool2dShape s{7, 65, 63, 3, 3, 2, 2, 1, 1, true};
  const auto x = random_values(static_cast<std::size_t>(s.planes * s.h * s.w), 2);
  const Result one = run(s, x, Mode::fast);
  set_threads(3);
  const Result three = run(s, x, Mode::fast);
  set_threads(1);
  CHECK(one == three);
}

TEST_CASE("max pooling lets a NaN win and finds minus infinity") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x{1, nan, 3, 4, -inf, -inf, -inf, -inf};
  for (const Mode mode : {Mode::fast, Mode::oracle}) {
    set_mode(mode);
    std::vector<float> y(2);
    std::vector<std::int32_t> index(2);
    cpu::max_pool2d<float>({2, 2, 2, 2, 2, 2, 2, 0, 0, true}, x, y, index);
    CHECK(y[0] != y[0]);
    CHECK(index == std::vector<std::int32_t>{1, 0});
    CHECK(y[1] == -inf);
  }
  set_mode(Mode::fast);
}

TEST_CASE("the mean divides by the window, with or without its padding") {
  const std::vector<float> x{1, 2, 3, 4};
  std::vector<float> y(4);
  cpu::avg_pool2d<float>({1, 2, 2, 2, 2, 2, 2, 1, 1, true}, x, y);
  CHECK(y == std::vector<float>{0.25F, 0.5F, 0.75F, 1});
  cpu::avg_pool2d<float>({1, 2, 2, 2, 2, 2, 2, 1, 1, false}, x, y);
  CHECK(y == x);
}
