// Tests versions 8 and 9 of the matrix product on bf16 operands.
#include <cmath>
#include <limits>

#include "kernels/cuda/matmul.hpp"
#include "tests/kernels/cuda/product_cases.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
using namespace ringsmith::kernels;

namespace {

constexpr cuda::PipelineStages kStages[] = {cuda::PipelineStages::two, cuda::PipelineStages::four};

void check(const ProductCase& c, cuda::PipelineStages stages) {
  check_product(c, [&](const cuda::Product<bf16>& p) { cuda::matmul_pipelined(p, stages); });
}

}  // namespace

TEST_CASE("pipelined products of bf16: sizes around the tile and the slab", "[cuda][pipelined]") {
  for (const auto stages : kStages) {
    INFO("stages " << (stages == cuda::PipelineStages::two ? 2 : 4));
    for_each_layout({{1, 1, 1},
                     {1, 1, 0},
                     {16, 8, 16},
                     {17, 9, 33},
                     {127, 129, 31},
                     {128, 128, 32},
                     {130, 40, 160},
                     {5, 131, 257}},
                    [&](const ProductCase& c) { check(c, stages); });
  }
}

TEST_CASE("pipelined products of bf16: batches, biases, sums that are added to",
          "[cuda][pipelined]") {
  for (const auto stages : kStages)
    for (const std::int64_t gap : {std::int64_t{0}, std::int64_t{3}, std::int64_t{8}, kFit})
      for (const bool one_b : {false, true}) {
        INFO("gap " << gap << ", one b " << one_b);
        check({40, 24, 72, false, true, gap, 5, one_b, true, Store::replace}, stages);
        check({24, 40, 96, true, false, gap, 3, one_b, false, Store::add}, stages);
      }
}

TEST_CASE("pipelined products of bf16: more matrices than blocks", "[cuda][pipelined]") {
  for (const auto stages : kStages) check({20, 17, 72, false, false, 0, 1500}, stages);
}

TEST_CASE("pipelined products: rows and columns that have NaN or infinity, and no others",
          "[cuda][pipelined]") {
  const std::int64_t n = 140, k = 100;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto stages : kStages) {
    std::vector<bf16> a(static_cast<std::size_t>(n * k), bf16(1.0F)), b(a);
    a[static_cast<std::size_t>(3 * k + 99)] = bf16(nan);
    a[static_cast<std::size_t>(130 * k)] = bf16(std::numeric_limits<float>::infinity());
    b[static_cast<std::size_t>(50 * n + 77)] = bf16(nan);
    b[0] = bf16(0.0F);
    const OnDevice<bf16> da(a), db(b), dc(static_cast<std::size_t>(n * n));
    cuda::matmul_pipelined({.a = row_major<const bf16>(da.data(), n, k),
                            .b = row_major<const bf16>(db.data(), k, n),
                            .c = row_major(dc.data(), n, n)},
                           stages);
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
}

TEST_CASE("the ladder's version for bf16 is the one that is set", "[cuda][pipelined]") {
  const OnDevice<bf16> a(std::vector<bf16>(9, bf16(1.5F))), b(a.host()), c(9);
  for (const int version : {0, 3, 8, 9, 10}) {
    if (version == 10 && !cuda::has_wgmma()) continue;
    cuda::set_matmul_version(version);
    cuda::matmul<bf16>(row_major<const bf16>(a.data(), 3, 3), row_major<const bf16>(b.data(), 3, 3),
                       row_major(c.data(), 3, 3));
    for (const bf16 x : c.host()) CHECK(static_cast<float>(x) == 6.75F);
  }
  cuda::set_matmul_version(0);
}
