// Tests version 10 of the matrix product: wgmma, tensor copies and barriers in shared memory.
#include <cmath>
#include <limits>

#include "kernels/cuda/matmul.hpp"
#include "tests/kernels/cuda/product_cases.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
using namespace ringsmith::kernels;

namespace {

void check(const ProductCase& c) {
  check_product(c, [](const cuda::Product<bf16>& p) { cuda::matmul_wgmma(p); });
}

bool here() {
  if (cuda::has_wgmma()) return true;
  CHECK_THROWS_WITH(cuda::matmul_wgmma(cuda::Product<bf16>{}), ContainsSubstring("sm_90a"));
  return false;
}

}  // namespace

TEST_CASE("products by wgmma: sizes around the tile and the slab", "[cuda][wgmma]") {
  if (!here()) return;
  for_each_layout({{1, 1, 1},
                   {1, 1, 0},
                   {64, 8, 16},
                   {65, 9, 33},
                   {127, 257, 63},
                   {128, 256, 64},
                   {130, 40, 320},
                   {5, 263, 513}},
                  [](const ProductCase& c) { check(c); });
}

TEST_CASE("products by wgmma: more tiles than blocks, more rows than a group", "[cuda][wgmma]") {
  if (!here()) return;
  for (int order = 0; order < 4; ++order) {
    check({300, 600, 200, order % 2 == 1, order / 2 == 1, kFit});
    check({2180, 24, 40, order % 2 == 1, order / 2 == 1, 0});
  }
}

TEST_CASE("products by wgmma: batches, biases, sums that are added to", "[cuda][wgmma]") {
  if (!here()) return;
  for (const std::int64_t gap : {std::int64_t{0}, std::int64_t{3}, std::int64_t{8}, kFit})
    for (const bool one_b : {false, true}) {
      INFO("gap " << gap << ", one b " << one_b);
      check({40, 24, 72, false, true, gap, 5, one_b, true, Store::replace});
      check({24, 40, 96, true, false, gap, 7, one_b, false, Store::add});
      check({140, 264, 24, true, true, gap, 2, one_b, true, Store::add});
    }
}

TEST_CASE("products by wgmma: rows and columns that have NaN or infinity, and no others",
          "[cuda][wgmma]") {
  if (!here()) return;
  const std::int64_t n = 140, k = 100;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<bf16> a(static_cast<std::size_t>(n * k), bf16(1.0F)), b(a);
  a[static_cast<std::size_t>(3 * k + 99)] = bf16(nan);
  a[static_cast<std::size_t>(130 * k)] = bf16(std::numeric_limits<float>::infinity());
  b[static_cast<std::size_t>(50 * n + 77)] = bf16(nan);
  b[0] = bf16(0.0F);
  const OnDevice<bf16> da(a), db(b), dc(static_cast<std::size_t>(n * n));
  cuda::matmul_wgmma({.a = row_major<const bf16>(da.data(), n, k),
                      .b = row_major<const bf16>(db.data(), k, n),
                      .c = row_major(dc.data(), n, n)});
  const auto got = dc.host();
  std::size_t wrong = 0;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      const float x = static_cast<float>(got[static_cast<std::size_t>(i * n + j)]);
      const bool is_nan = i == 3 || j == 77 || (i == 130 && j == 0);  // infinity times 0
      const float want = i == 130 ? std::numeric_limits<float>::infinity() : j == 0 ? 99 : 100;
      wrong += (is_nan ? !std::isnan(x) : x != want) ? 1 : 0;
    }
  CHECK(wrong == 0);
}

TEST_CASE("products by wgmma of floats, which are rounded: any layout of the result",
          "[cuda][wgmma]") {
  if (!here()) return;
  const std::int64_t m = 140, n = 264, k = 72;
  const auto a = random_values(m * k, 1), b = random_values(k * n, 2), bias = random_values(n, 3),
             before = random_values(4 * m * n, 4);
  const OnDevice<float> da(a), db(b), dbias(bias);
  struct Layout {
    std::int64_t row_stride, col_stride, first;
  };
  // By rows, by columns, in rows whose distance is odd, misaligned, with gaps in both directions.
  for (const Layout& l : {Layout{n, 1, 0}, Layout{1, m, 0}, Layout{n + 1, 1, 0}, Layout{n, 1, 1},
                          Layout{2 * n, 2, 0}})
    for (const Store how : {Store::replace, Store::add})
      for (const bool with_bias : {false, true}) {
        INFO("strides " << l.row_stride << ", " << l.col_stride << ", first " << l.first);
        const OnDevice<float> dc(before);
        cuda::matmul_wgmma({.a = row_major<const float>(da.data(), m, k),
                            .b = row_major<const float>(db.data(), k, n),
                            .c = {dc.data() + l.first, m, n, l.row_stride, l.col_stride},
                            .store = how,
                            .bias = with_bias ? dbias.data() : nullptr});
        std::vector<float> got = dc.host();
        std::vector<float> want = before;
        std::size_t wrong = 0;
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < n; ++j) {
            const auto at = static_cast<std::size_t>(l.first + i * l.row_stride + j * l.col_stride);
            const auto value = [](const std::vector<float>& v, std::int64_t q) {
              return v[static_cast<std::size_t>(q)];
            };
            double sum = with_bias ? value(bias, j) : 0, size = 0;
            if (how == Store::add) sum += double{before[at]};
            for (std::int64_t q = 0; q < k; ++q) {
              const double term = double{static_cast<float>(bf16(value(a, i * k + q)))} *
                                  double{static_cast<float>(bf16(value(b, q * n + j)))};
              sum += term;
              size += std::abs(term);
            }
            wrong +=
                std::abs(double{got[at]} - sum) <= 1e-6 * (size + std::abs(sum)) + 1e-6 ? 0 : 1;
            got[at] = want[at] = 0;
          }
        CHECK(wrong == 0);
        CHECK(got == want);  // nothing else was written
      }
}
