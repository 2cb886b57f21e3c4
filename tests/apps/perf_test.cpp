// Tests the measuring programs' data, which are exact in any order and reveal a single wrong bit.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "labs/apps/perf/data.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;
using comm::ReduceOp;

namespace {

constexpr std::size_t kCount = 97;

template <class T>
double as_double(T v) {
  if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)
    return static_cast<float>(v);
  else
    return static_cast<double>(v);
}

template <class T>
T rounded(double v) {
  if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)
    return T(static_cast<float>(v));
  else
    return static_cast<T>(v);
}

// Reduces the ranks' inputs in this order. Rounds to T after every operation.
template <class T>
std::vector<T> reduce(const Pattern& pattern, const std::vector<int>& order) {
  std::vector<std::vector<T>> inputs(static_cast<std::size_t>(pattern.world),
                                     std::vector<T>(kCount));
  for (int r = 0; r < pattern.world; ++r)
    fill(std::span<T>(inputs[static_cast<std::size_t>(r)]), pattern, r);
  const double factor = as_double(rounded<T>(1.0 / pattern.world));
  std::vector<T> out(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto contribution = [&](int r) {
      const T x = inputs[static_cast<std::size_t>(r)][i];
      return pattern.op == ReduceOp::avg ? rounded<T>(as_double(x) * factor) : x;
    };
    T value = contribution(order[0]);
    for (std::size_t k = 1; k < order.size(); ++k) {
      const double a = as_double(value), b = as_double(contribution(order[k]));
      value = rounded<T>(pattern.op == ReduceOp::prod  ? a * b
                         : pattern.op == ReduceOp::min ? std::min(a, b)
                         : pattern.op == ReduceOp::max ? std::max(a, b)
                                                       : a + b);
    }
    out[i] = value;
  }
  return out;
}

template <class T>
std::size_t wrong_in(std::vector<T>& data, const Pattern& pattern) {
  return count_wrong(std::span<T>(data), pattern, [](std::size_t i) { return Expected{-1, i}; });
}

}  // namespace

TEMPLATE_TEST_CASE("every order of the ranks gives the expected result exactly", "[perf]", float,
                   double, f16, bf16, std::int32_t, std::int64_t, std::uint8_t) {
  for (const ReduceOp op :
       {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg})
    for (const int world : {1, 2, 3, 4, 5, 7, 8, 61}) {
      if (op == ReduceOp::avg && std::is_integral_v<TestType>) continue;
      const Pattern pattern{op, world, 3};
      std::vector<int> order(static_cast<std::size_t>(world));
      for (int r = 0; r < world; ++r) order[static_cast<std::size_t>(r)] = r;
      auto forward = reduce<TestType>(pattern, order);
      std::reverse(order.begin(), order.end());
      auto backward = reduce<TestType>(pattern, order);
      INFO("world " << world << " op " << comm::name_of(op));
      CHECK(wrong_in(forward, pattern) == 0);
      CHECK(wrong_in(backward, pattern) == 0);
    }
}

TEST_CASE("one wrong bit, a NaN, a missing rank and a doubled rank are all noticed", "[perf]") {
  const Pattern pattern{ReduceOp::sum, 4, 1};
  auto sum = reduce<float>(pattern, {0, 1, 2, 3});
  sum[5] = std::nextafter(sum[5], 1e9f);
  CHECK(wrong_in(sum, pattern) == 1);
  sum[6] = std::numeric_limits<float>::quiet_NaN();
  CHECK(wrong_in(sum, pattern) == 2);
  auto missing = reduce<float>(pattern, {0, 1, 2});
  CHECK(wrong_in(missing, pattern) > kCount / 2);
  auto doubled = reduce<float>(pattern, {0, 1, 2, 3, 3});
  CHECK(wrong_in(doubled, pattern) > kCount / 2);
  const Pattern thirds{ReduceOp::avg, 3, 1};
  auto average = reduce<float>(thirds, {0, 1, 2});
  CHECK(wrong_in(average, thirds) == 0);
  average[0] = std::numeric_limits<float>::quiet_NaN();
  average[1] += 0.01f;
  CHECK(wrong_in(average, thirds) == 2);
}

TEST_CASE("another seed gives other inputs, so that an old result cannot pass", "[perf]") {
  const Pattern first{ReduceOp::sum, 2, 1}, second{ReduceOp::sum, 2, 2};
  auto old = reduce<float>(first, {0, 1});
  CHECK(wrong_in(old, first) == 0);
  CHECK(wrong_in(old, second) > kCount / 2);
}
