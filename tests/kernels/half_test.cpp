// Products of 16-bit matrices, and conversions of whole arrays: the bits of the float product of
// the widened matrices, rounded once, and those of kernels/half.hpp.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/copy.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/matmul.hpp"
#include "tests/kernels/support.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::kernels;
using ringsmith::testing::distance;
using ringsmith::testing::ModeScope;
using ringsmith::testing::random_values;

namespace {

// Rows, columns, rows of a wider matrix, gaps both ways; gaps are NaN.
template <class T>
struct Stored {
  std::vector<T> memory;
  Matrix<T> matrix;

  Stored(const std::vector<float>& values, std::int64_t rows, std::int64_t cols, int layout)
      : memory(static_cast<std::size_t>(4 * (rows + 3) * (cols + 3)),
               T(std::numeric_limits<float>::quiet_NaN())) {
    matrix = {memory.data(), rows, cols, cols, 1};
    if (layout == 1) matrix = {memory.data(), rows, cols, 1, rows};
    if (layout == 2) matrix = {memory.data() + 1, rows, cols, cols + 3, 1};
    if (layout == 3) matrix = {memory.data() + 1, rows, cols, 2 * (cols + 1), 2};
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c)
        matrix(r, c) = T(values[static_cast<std::size_t>(r * cols + c)]);
  }
  Stored(const Stored&) = delete;
  Stored& operator=(const Stored&) = delete;
  [[nodiscard]] std::vector<float> wide() const {
    std::vector<float> out;
    for (std::int64_t r = 0; r < matrix.rows; ++r)
      for (std::int64_t c = 0; c < matrix.cols; ++c)
        out.push_back(static_cast<float>(matrix(r, c)));
    return out;
  }
  [[nodiscard]] std::size_t nans() const {
    std::size_t n = 0;
    for (const T x : memory) n += std::isnan(static_cast<float>(x)) ? 1U : 0U;
    return n;
  }
};

template <class T>
std::vector<float> rounded(std::vector<float> values) {
  for (float& v : values) v = static_cast<float>(T(v));
  return values;
}

using Shapes = std::vector<std::vector<std::int64_t>>;

template <class T>
void check_bits(const Shapes& shapes) {
  for (const auto& s : shapes)
    for (int layout = 0; layout < 64; layout += 5)
      for (const Store how : {Store::replace, Store::add}) {
        const Stored<T> a(random_values(s[0] * s[2], 1), s[0], s[2], layout % 4);
        const Stored<T> b(random_values(s[2] * s[1], 2), s[2], s[1], layout / 4 % 4);
        const Stored<T> c(random_values(s[0] * s[1], 3), s[0], s[1], layout / 16);
        const std::vector<float> left = a.wide(), right = b.wide();
        std::vector<float> want = c.wide();
        const std::size_t gaps = c.nans();
        cpu::matmul<float>(row_major(left.data(), s[0], s[2]), row_major(right.data(), s[2], s[1]),
                           row_major(want.data(), s[0], s[1]), how);
        cpu::matmul<T>(a.matrix, b.matrix, c.matrix, how);
        INFO(s[0] << " x " << s[1] << " x " << s[2] << ", layout " << layout);
        REQUIRE(c.wide() == rounded<T>(want));
        REQUIRE(c.nans() == gaps);
      }
}

template <class T>
std::vector<std::uint16_t> bits_of(const std::vector<T>& values) {
  std::vector<std::uint16_t> out;
  for (const T v : values) out.push_back(v.bits);
  return out;
}

// Every float whose last bits lie at, below and above a tie of T, and what has no neighbours.
template <class T>
std::vector<float> awkward_floats() {
  std::vector<float> out;
  for (std::uint32_t code = 0; code < 65536; code += 7) {
    T x;
    x.bits = static_cast<std::uint16_t>(code);
    const auto exact = std::bit_cast<std::uint32_t>(static_cast<float>(x));
    for (const std::uint32_t more : {0U, 1U, 0xfffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U})
      out.push_back(std::bit_cast<float>(exact + more));
  }
  for (const float x : {1e-45F, 1e-8F, 65519.0F, 65520.0F, 3.4e38F}) out.push_back(x);
  return out;
}

template <class T>
void check_conversions() {
  const std::vector<float> wide = awkward_floats<T>();
  std::vector<T> narrow(wide.size()), want;
  for (const float x : wide) want.push_back(T(x));
  const auto layout = [](std::size_t n) {
    Layout l;
    l.dims = 1;
    l.sizes[0] = static_cast<std::int64_t>(n);
    l.strides[0] = 1;
    return l;
  };
  cpu::copy<T, float>({narrow.data(), layout(wide.size())}, {wide.data(), layout(wide.size())});
  CHECK(bits_of(narrow) == bits_of(want));

  std::vector<T> codes(65536);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i].bits = static_cast<std::uint16_t>(i);
  std::vector<float> floats(codes.size());
  cpu::copy<float, T>({floats.data(), layout(codes.size())}, {codes.data(), layout(codes.size())});
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const auto one = static_cast<float>(codes[i]);
    REQUIRE((std::isnan(one)
                 ? std::isnan(floats[i])
                 : std::bit_cast<std::uint32_t>(one) == std::bit_cast<std::uint32_t>(floats[i])));
  }
}

}  // namespace

TEST_CASE("arrays are widened and rounded as one number is: all codes, ties, NaN, infinity") {
  check_conversions<bf16>();
  check_conversions<f16>();
}

TEST_CASE("a 16-bit product is the float product of the widened matrices, rounded once") {
  const Shapes shapes = {{1, 1, 1},    {1, 17, 3},    {17, 1, 33},    {31, 65, 127},
                         {64, 33, 70}, {255, 9, 300}, {257, 258, 40}, {5, 600, 513}};
  for (const auto mode : {Mode::fast, Mode::oracle}) {
    const ModeScope scope(mode);
    check_bits<bf16>(mode == Mode::fast ? shapes : Shapes(shapes.begin(), shapes.begin() + 4));
    check_bits<f16>(mode == Mode::fast ? shapes : Shapes(shapes.begin(), shapes.begin() + 4));
  }
}

TEST_CASE("a 16-bit linear adds its bias before it rounds") {
  const std::int64_t m = 9, n = 300, k = 270;
  const Stored<bf16> x(random_values(m * k, 1), m, k, 0), w(random_values(n * k, 2), n, k, 0);
  const Stored<bf16> y(random_values(m * n, 3), m, n, 0), bias(random_values(n, 4), 1, n, 0);
  std::vector<float> want(static_cast<std::size_t>(m * n));
  const std::vector<float> wx = x.wide(), ww = w.wide(), wb = bias.wide();
  cpu::linear<float>(row_major(wx.data(), m, k), row_major(ww.data(), n, k), wb,
                     row_major(want.data(), m, n));
  cpu::linear<bf16>(x.matrix, w.matrix,
                    std::span<const bf16>(bias.matrix.data, static_cast<std::size_t>(n)), y.matrix);
  CHECK(y.wide() == rounded<bf16>(want));
}

TEST_CASE(
    "16-bit products: no terms are zeros, NaN and infinity come through, threads change nothing") {
  std::vector<bf16> none, some(6, bf16(3.0F));
  cpu::matmul<bf16>({none.data(), 2, 0, 0, 1}, {none.data(), 0, 3, 3, 1},
                    row_major(some.data(), 2, 3));
  for (const bf16 x : some) CHECK(static_cast<float>(x) == 0.0F);

  const float inf = std::numeric_limits<float>::infinity();
  const Stored<bf16> a({1, inf, 1, std::nanf("")}, 2, 2, 0), b({1, 1, 1, 1}, 2, 2, 0);
  const Stored<bf16> c({0, 0, 0, 0}, 2, 2, 0);
  cpu::matmul<bf16>(a.matrix, b.matrix, c.matrix);
  CHECK(c.wide()[0] == inf);
  CHECK(std::isnan(c.wide()[2]));

  const Stored<bf16> left(random_values(400 * 300, 1), 400, 300, 0);
  const Stored<bf16> right(random_values(300 * 520, 2), 300, 520, 1);
  const Stored<bf16> one(random_values(400 * 520, 3), 400, 520, 0);
  const Stored<bf16> three(random_values(400 * 520, 3), 400, 520, 0);
  cpu::matmul<bf16>(left.matrix, right.matrix, one.matrix);
  set_threads(3);
  cpu::matmul<bf16>(left.matrix, right.matrix, three.matrix);
  set_threads(1);
  CHECK(one.wide() == three.wide());
}
