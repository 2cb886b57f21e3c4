// Compares fast element-wise kernels and sums with the oracles.
#include "kernels/elementwise.hpp"

#include "kernels/reduction.hpp"
#include "runtime/tensor/raw.hpp"
#include "runtime/tensor/tensor.hpp"
#include "tests/kernels/support.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using kernels::Mode;
using ringsmith::testing::distance;
using ringsmith::testing::ModeScope;
using ringsmith::testing::random_values;

namespace {

constexpr double kUlps = 6e-7;  // relative to the largest value

class ThreadScope {
 public:
  explicit ThreadScope(int n) { kernels::set_threads(n); }
  ~ThreadScope() { kernels::set_threads(1); }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;
};

Tensor values_of(const Shape& shape, unsigned seed) {
  return from_vector(random_values(numel_of(shape), seed, 2.0F), shape);
}

std::vector<Tensor> layouts(const Tensor& t) {
  std::vector<Tensor> all{t};
  if (t.dim() < 2) return all;
  all.push_back(t.transpose(0, -1).contiguous().transpose(0, -1));
  Shape wide = t.sizes();
  wide.back() = wide.back() * 2 + 1;
  const Tensor gaps = full(wide, 99).slice(-1, 1, wide.back(), 2);
  gaps.copy_(t);
  all.push_back(gaps);
  return all;
}

template <class F>
void compare(const F& f, double tolerance = kUlps) {
  Tensor fast, oracle;
  {
    const ModeScope mode(Mode::oracle);
    oracle = f();
  }
  fast = f();
  REQUIRE(fast.sizes() == oracle.sizes());
  REQUIRE(distance(fast.to_vector<float>(), oracle.to_vector<float>()) <= tolerance);
}

const std::vector<Shape> kShapes{{0},    {1},     {7},       {8},       {17},     {1000},
                                 {3, 5}, {16, 9}, {4, 3, 5}, {2, 0, 3}, {33, 65}, {2, 3, 4, 5}};

}  // namespace

TEST_CASE("element-wise kernels agree with the oracle in every layout", "[elementwise]") {
  using raw::Unary;
  for (const Shape& shape : kShapes) {
    const Tensor base = values_of(shape, 1);
    for (const Tensor& x : layouts(base)) {
      for (const Unary op : {Unary::neg, Unary::exp, Unary::tanh, Unary::sigmoid, Unary::relu,
                             Unary::gelu_erf, Unary::gelu_tanh})
        compare([&] { return raw::unary(op, x, "test"); });
      const Tensor y = raw::scalar(raw::Scalar::add, raw::unary(Unary::exp, x, "t"), 0.1, "t");
      for (const Unary op : {Unary::log, Unary::sqrt})
        compare([&] { return raw::unary(op, y, "test"); });
    }
  }
}

TEST_CASE("two-operand kernels agree with the oracle under every broadcast", "[elementwise]") {
  using raw::Binary;
  const std::vector<std::pair<Shape, Shape>> pairs{
      {{0}, {1}},       {{7}, {7}},          {{33, 17}, {17}},    {{33, 17}, {33, 1}},
      {{5, 1}, {1, 9}}, {{2, 3, 4}, {3, 1}}, {{4, 1, 6}, {5, 1}}, {{3, 4, 5}, {}}};
  for (const auto& [sa, sb] : pairs) {
    const Tensor a0 = values_of(sa, 2), b0 = values_of(sb, 3);
    for (const Tensor& a : layouts(a0))
      for (const Tensor& b : layouts(b0))
        for (int op = 0; op <= static_cast<int>(Binary::gelu_tanh_backward); ++op)
          compare([&] { return raw::binary(static_cast<Binary>(op), a, b, "test"); });
  }
}

TEST_CASE("threads change no bit of an element-wise result or a column sum", "[elementwise]") {
  const Tensor x = values_of({301, 517}, 4), bias = values_of({517}, 5);
  const auto all = [&] {
    const Tensor y =
        raw::binary(raw::Binary::add, raw::unary(raw::Unary::gelu_tanh, x, "t"), bias, "t");
    const Tensor s = raw::sum(y.transpose(0, 1), {false, true}, false, "t");
    std::vector<float> v = y.to_vector<float>();
    for (const float f : s.to_vector<float>()) v.push_back(f);
    return v;
  };
  const std::vector<float> one = all();
  const ThreadScope threads(3);
  REQUIRE(all() == one);
}

TEST_CASE("in place and out of place give the same values", "[elementwise]") {
  const Tensor x = values_of({1003}, 6);
  const Tensor out = raw::unary(raw::Unary::tanh, x, "t");
  const Tensor same = x.clone();
  kernels::cpu::unary<float>(raw::Unary::tanh, same.view_of<float>(), same.view_of<const float>());
  REQUIRE(same.to_vector<float>() == out.to_vector<float>());
  Tensor moved = x.clone();
  const float* memory = moved.data<float>();
  const Tensor reused = raw::unary(raw::Unary::tanh, std::move(moved), "t");
  REQUIRE(reused.data<float>() == memory);  // the operand was the only reference
  REQUIRE(raw::unary(raw::Unary::tanh, x, "t").data<float>() != x.data<float>());
}

TEST_CASE("sums over any dimensions agree with the oracle and with f64", "[reduction]") {
  const std::vector<Shape> shapes{{1},      {7},       {8},        {9},         {1000},
                                  {100003}, {3, 5},    {64, 32},   {257, 100},  {1, 40},
                                  {40, 1},  {4, 3, 5}, {2, 9, 33}, {3, 2, 4, 5}};
  for (const Shape& shape : shapes) {
    // The values are shifted away from zero, because errors are relative to the sum.
    const Tensor base = raw::scalar(raw::Scalar::add, values_of(shape, 7), 3, "test");
    for (const Tensor& x : layouts(base))
      for (unsigned choice = 0; choice < 1U << shape.size(); ++choice) {
        std::vector<bool> reduced;
        for (std::size_t d = 0; d < shape.size(); ++d) reduced.push_back((choice >> d & 1U) != 0);
        compare([&] { return raw::sum(x, reduced, true, "test"); }, 1e-6);
        const Tensor exact = raw::sum(x.to(DType::f64), reduced, true, "test").to(DType::f32);
        REQUIRE(distance(raw::sum(x, reduced, true, "test").to_vector<float>(),
                         exact.to_vector<float>()) <= 1e-6);
      }
  }
}

TEST_CASE("sums of small integers are exact in both modes", "[reduction]") {
  for (const Mode mode : {Mode::fast, Mode::oracle}) {
    const ModeScope scope(mode);
    for (const std::int64_t n : {1, 2, 15, 16, 17, 4095, 4096, 4097, 65537}) {
      const Tensor x = arange(n).to(DType::f32);
      const auto want = static_cast<double>(n) * static_cast<double>(n - 1) / 2;
      if (want < (1 << 24)) REQUIRE(raw::sum(x, {true}, false, "t").item<float>() == want);
      const Tensor ones_matrix = full({n, 3}, 1);
      REQUIRE(raw::sum(ones_matrix, {true, false}, false, "t").to_vector<float>() ==
              std::vector<float>(3, static_cast<float>(n)));
    }
  }
}
