// Tests products in every storage order, and the order of their sums.
#include "kernels/matmul.hpp"

#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <sched.h>
#include <unistd.h>
#include <vector>

#include "kernels/cpu/gemm.hpp"
#include "tests/kernels/support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"

using namespace ringsmith;
using namespace ringsmith::kernels::cpu;
using ringsmith::testing::distance;
using ringsmith::testing::ModeScope;
using ringsmith::testing::random_values;

namespace {

// A matrix stored in one of four ways: rows, columns, rows of a wider matrix, or with gaps in both
// directions. The gaps are NaN, so any read of one shows up in the result.
struct Stored {
  std::vector<float> memory;
  Matrix<float> matrix;
};
Stored store(const std::vector<float>& values, std::int64_t rows, std::int64_t cols, int layout) {
  Stored s;
  s.memory.assign(static_cast<std::size_t>(4 * (rows + 3) * (cols + 3)),
                  std::numeric_limits<float>::quiet_NaN());
  s.matrix = {s.memory.data(), rows, cols, cols, 1};
  if (layout == 1) s.matrix = {s.memory.data(), rows, cols, 1, rows};
  if (layout == 2) s.matrix = {s.memory.data() + 1, rows, cols, cols + 3, 1};
  if (layout == 3) s.matrix = {s.memory.data() + 1, rows, cols, 2 * (cols + 1), 2};
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      s.matrix(r, c) = values[static_cast<std::size_t>(r * cols + c)];
  return s;
}
std::vector<float> values_of(const Matrix<float>& m) {
  std::vector<float> v;
  for (std::int64_t r = 0; r < m.rows; ++r)
    for (std::int64_t c = 0; c < m.cols; ++c) v.push_back(m(r, c));
  return v;
}
std::size_t nan_count(const std::vector<float>& v) {
  std::size_t n = 0;
  for (const float x : v) n += std::isnan(x) ? 1U : 0U;
  return n;
}

}  // namespace

TEST_CASE(
    "a fast product equals the oracle's for odd shapes, all storage orders, replace and add") {
  const std::vector<std::vector<std::int64_t>> shapes = {
      {1, 1, 1}, {1, 17, 3}, {3, 1, 31}, {17, 33, 1}, {31, 65, 127}, {64, 10, 100}, {128, 128, 32}};
  for (const auto& s : shapes)
    for (int layout = 0; layout < 64; ++layout)
      for (const Store how : {Store::replace, Store::add}) {
        const Stored a = store(random_values(s[0] * s[2], 1), s[0], s[2], layout % 4);
        const Stored b = store(random_values(s[2] * s[1], 2), s[2], s[1], layout / 4 % 4);
        const Stored c = store(random_values(s[0] * s[1], 3), s[0], s[1], layout / 16);
        const Stored d = store(random_values(s[0] * s[1], 3), s[0], s[1], layout / 16);
        {
          const ModeScope oracle(kernels::Mode::oracle);
          matmul<float>(a.matrix, b.matrix, c.matrix, how);
        }
        const ModeScope fast(kernels::Mode::fast);
        matmul<float>(a.matrix, b.matrix, d.matrix, how);
        REQUIRE(distance(values_of(d.matrix), values_of(c.matrix)) < 3e-6);
        REQUIRE(nan_count(d.memory) == nan_count(c.memory));  // no gap was written
      }
}

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
TEST_CASE("a fast product is one chain of fused multiply-adds over k, to the bit, in any shape") {
  // Sizes around every blocking constant: lanes, tile rows and widths, depth, L2 block.
  const std::vector<std::vector<std::int64_t>> shapes = {
      {1, 1, 1},     {5, 15, 127},    {6, 16, 128},   {7, 17, 129},   {12, 32, 5},
      {13, 33, 257}, {24, 48, 64},    {25, 63, 300},  {64, 65, 70},   {3, 700, 40},
      {600, 9, 130}, {530, 130, 131}, {65, 1030, 66}, {20, 130, 1100}};
  for (const auto& s : shapes)
    for (int layout = 0; layout < 8; ++layout)
      for (const Store how : {Store::replace, Store::add}) {
        const Stored a = store(random_values(s[0] * s[2], 1), s[0], s[2], layout & 1);
        const Stored b = store(random_values(s[2] * s[1], 2), s[2], s[1], layout >> 1 & 1);
        const Stored c = store(random_values(s[0] * s[1], 3), s[0], s[1], layout >> 2);
        std::vector<float> want = values_of(c.matrix);
        const std::vector<float> left = values_of(a.matrix), right = values_of(b.matrix);
        const auto m = static_cast<std::size_t>(s[0]), n = static_cast<std::size_t>(s[1]),
                   depth = static_cast<std::size_t>(s[2]);
        if (how == Store::replace) want.assign(want.size(), 0.0F);
        for (std::size_t i = 0; i < m; ++i)
          for (std::size_t k = 0; k < depth; ++k)
            for (std::size_t j = 0; j < n; ++j)
              want[i * n + j] = std::fma(left[i * depth + k], right[k * n + j], want[i * n + j]);
        fast::matmul(a.matrix, b.matrix, c.matrix, how);
        REQUIRE(values_of(c.matrix) == want);
      }
}

TEST_CASE("a fast linear begins the chain at the bias, in both orientations") {
  for (const auto& s : std::vector<std::vector<std::int64_t>>{{64, 100, 300}, {300, 65, 40}}) {
    const auto x = random_values(s[0] * s[2], 1), w = random_values(s[1] * s[2], 2);
    const auto bias = random_values(s[1], 3);
    std::vector<float> y(static_cast<std::size_t>(s[0] * s[1]), 99.0F), want(y);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const auto r = static_cast<std::int64_t>(i) / s[1], c = static_cast<std::int64_t>(i) % s[1];
      want[i] = bias[static_cast<std::size_t>(c)];
      for (std::int64_t k = 0; k < s[2]; ++k)
        want[i] = std::fma(x[static_cast<std::size_t>(r * s[2] + k)],
                           w[static_cast<std::size_t>(c * s[2] + k)], want[i]);
    }
    fast::linear(row_major(x.data(), s[0], s[2]), row_major(w.data(), s[1], s[2]), bias,
                 row_major(y.data(), s[0], s[1]));
    CHECK(y == want);
  }
}
#endif

TEST_CASE("threads change no bit of a product") {
  const auto a = random_values(150 * 700, 1), b = random_values(700 * 900, 2);
  std::vector<float> c(150 * 900), d(c);
  const auto product = [&](std::vector<float>& out) {
    fast::matmul(row_major(a.data(), 150, 700), row_major(b.data(), 700, 900),
                 row_major(out.data(), 150, 900), Store::replace);
  };
  product(c);
  kernels::set_threads(3);
  product(d);
  kernels::set_threads(1);
  CHECK(c == d);
}

TEST_CASE("OpenBLAS, when asked for, computes the same products to rounding") {
  const auto a = random_values(65 * 33, 1), b = random_values(33 * 70, 2);
  std::vector<float> c(65 * 70, 2.0F), d(c);
  const auto product = [&](std::vector<float>& out) {
    fast::matmul(row_major(a.data(), 33, 65).t(), row_major(b.data(), 33, 70),
                 row_major(out.data(), 65, 70), Store::add);
  };
  product(c);
  kernels::set_products(kernels::Products::openblas);
  product(d);
  kernels::set_products(kernels::Products::own);
  CHECK(distance(c, d) < 2e-6);
  CHECK(kernels::parse_products("openblas") == kernels::Products::openblas);
  CHECK_THROWS_WITH(kernels::parse_products("mkl"), ContainsSubstring("use own or openblas"));
}

TEST_CASE("an empty sum is zero, replaces NaN, and adds nothing") {
  for (const kernels::Mode mode : {kernels::Mode::fast, kernels::Mode::oracle}) {
    const ModeScope scope(mode);
    std::vector<float> c(6, std::numeric_limits<float>::quiet_NaN());
    matmul<float>(row_major<const float>(nullptr, 2, 0), row_major<const float>(nullptr, 0, 3),
                  row_major(c.data(), 2, 3));
    CHECK(c == std::vector<float>(6, 0.0F));
    c.assign(6, 2.0F);
    matmul<float>(row_major<const float>(nullptr, 2, 0), row_major<const float>(nullptr, 0, 3),
                  row_major(c.data(), 2, 3), Store::add);
    CHECK(c == std::vector<float>(6, 2.0F));
    matmul<float>(row_major<const float>(nullptr, 0, 5), row_major<const float>(c.data(), 5, 1),
                  row_major<float>(nullptr, 0, 1));
    std::vector<float> sums(3, 7.0F);
    column_sum<float>(row_major<const float>(nullptr, 0, 3), sums);
    CHECK(sums == std::vector<float>(3, 0.0F));
  }
}

TEST_CASE("NaN and inf come through a product, also against a zero") {
  for (const kernels::Mode mode : {kernels::Mode::fast, kernels::Mode::oracle}) {
    const ModeScope scope(mode);
    for (const std::int64_t n : {2, 33, 130}) {
      std::vector<float> a(static_cast<std::size_t>(n * n)), b(a), c(a);
      a[1] = std::numeric_limits<float>::quiet_NaN();                           // row 0
      a[static_cast<std::size_t>(n)] = std::numeric_limits<float>::infinity();  // row 1
      matmul<float>(row_major<const float>(a.data(), n, n), row_major<const float>(b.data(), n, n),
                    row_major(c.data(), n, n));
      CHECK(std::isnan(c[0]));
      CHECK(std::isnan(c[static_cast<std::size_t>(n)]));  // inf * 0
    }
  }
}

TEST_CASE("linear adds the bias once to every row, in place of what y held") {
  for (const std::int64_t n : {1, 3, 64, 129}) {
    const std::int64_t in = 65, out = 31;
    const auto x = random_values(n * in, 1), w = random_values(out * in, 2),
               b = random_values(out, 3);
    std::vector<float> y(static_cast<std::size_t>(n * out), 99.0F), z(y);
    for (const bool with_bias : {false, true}) {
      const std::span<const float> bias(b.data(), with_bias ? b.size() : 0);
      {
        const ModeScope oracle(kernels::Mode::oracle);
        linear<float>(row_major(x.data(), n, in), row_major(w.data(), out, in), bias,
                      row_major(y.data(), n, out));
      }
      const ModeScope fast(kernels::Mode::fast);
      linear<float>(row_major(x.data(), n, in), row_major(w.data(), out, in), bias,
                    row_major(z.data(), n, out));
      CHECK(distance(z, y) < 2e-6);
    }
  }
}

TEST_CASE("column sums are exact on integers and agree between modes, all widths and heights") {
  for (const std::int64_t rows : {1, 3, 16, 17, 127, 128, 129, 1000})
    for (const std::int64_t cols : {1, 3, 7, 8, 31, 33, 63, 64, 65, 130}) {
      std::vector<float> x(static_cast<std::size_t>(rows * cols));
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 13) - 5.0F;
      std::vector<float> want(static_cast<std::size_t>(cols), 2.0F);
      for (std::size_t i = 0; i < x.size(); ++i) want[i % want.size()] += x[i];
      for (const kernels::Mode mode : {kernels::Mode::fast, kernels::Mode::oracle}) {
        const ModeScope scope(mode);
        std::vector<float> sums(want.size(), 2.0F);
        column_sum<float>(row_major(x.data(), rows, cols), sums, Store::add);
        REQUIRE(sums == want);
      }
    }
}

TEST_CASE("the oracle's float sums have the bits of ascending order, not of a better one") {
  // 1 + 2^-24 is rounded down to 1, twice. Adding 2^-24 + 2^-24 first would change the sum.
  const ModeScope oracle(kernels::Mode::oracle);
  const float half_ulp = std::ldexp(1.0F, -24);
  const std::vector<float> a = {1.0F, half_ulp, half_ulp}, b = {1.0F, 1.0F, 1.0F};
  float c = 0;
  matmul<float>(row_major(a.data(), 1, 3), row_major(b.data(), 3, 1), row_major(&c, 1, 1));
  CHECK(c == 1.0F);
}

// Needs a separate process, because another case may already have opened the library in this one.
TEST_CASE("opens OpenBLAS", "[.][opens_openblas]") {
  cpu_set_t before{}, after{};
  char** const environment = environ;
  sched_getaffinity(0, sizeof before, &before);
  (void)blas_description();
  sched_getaffinity(0, sizeof after, &after);
  CHECK(CPU_EQUAL(&before, &after));
  CHECK(environ == environment);
  CHECK(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}) == 1);
}
TEST_CASE("opening OpenBLAS starts no thread and leaves environment and affinity alone") {
  const auto opened = testing::run_program(
      {"env", "-u", "OPENBLAS_NUM_THREADS", "-u", "OMP_NUM_THREADS",
       std::filesystem::read_symlink("/proc/self/exe").string(), "[opens_openblas]"});
  INFO(opened.out << opened.err);
  CHECK(opened.exit_code == 0);
  CHECK_THAT(opened.out, ContainsSubstring("3 assertions in 1 test case"));
}

TEST_CASE("the OpenBLAS in use can be named") {
  CHECK_THAT(blas_description(), ContainsSubstring("OpenBLAS") && ContainsSubstring("kernels ("));
}
