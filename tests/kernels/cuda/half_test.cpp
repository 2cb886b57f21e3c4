// Compares 16-bit products on a device with double, and tests GradScaler's kernel.
#include <cmath>
#include <limits>

#include "kernels/matmul.hpp"
#include "kernels/optim.hpp"
#include "tests/kernels/cuda/support.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
using namespace ringsmith::kernels;

namespace {

template <class T>
std::vector<T> rounded(const std::vector<float>& values) {
  std::vector<T> out;
  for (const float v : values) out.push_back(T(v));
  return out;
}

// The result must be a sum of k floats, rounded once to T. The tolerance is half a unit of T's last
// place plus the error of the float sum.
template <class T>
void check_product(std::int64_t m, std::int64_t n, std::int64_t k, bool turned, Store how) {
  const double last_place = std::is_same_v<T, bf16> ? 0x1p-8 : 0x1p-11;
  const std::vector<T> a = rounded<T>(random_values(m * k, 1)),
                       b = rounded<T>(random_values(k * n, 2)),
                       c = rounded<T>(random_values(m * n, 3));
  const OnDevice<T> da(a), db(b), dc(c);
  const Matrix<const T> left{da.data(), m, k, turned ? 1 : k, turned ? m : 1};
  const Matrix<const T> right{db.data(), k, n, turned ? 1 : n, turned ? k : 1};
  cuda::matmul<T>(left, right, row_major(dc.data(), m, n), how);
  const std::vector<T> got = dc.host();
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      const auto at = static_cast<std::size_t>(i * n + j);
      double want = how == Store::add ? double{static_cast<float>(c[at])} : 0, size = 0;
      for (std::int64_t x = 0; x < k; ++x) {
        const auto ai = static_cast<std::size_t>(turned ? x * m + i : i * k + x);
        const auto bi = static_cast<std::size_t>(turned ? j * k + x : x * n + j);
        const double term = double{static_cast<float>(a[ai])} * double{static_cast<float>(b[bi])};
        want += term;
        size += std::abs(term);
      }
      const double off = std::abs(double{static_cast<float>(got[at])} - want);
      REQUIRE(off <= last_place * std::abs(want) + 1e-6 * size);
    }
}

}  // namespace

TEST_CASE("16-bit products on a device are float sums, rounded once", "[cuda]") {
  for (const bool turned : {false, true})
    for (const Store how : {Store::replace, Store::add}) {
      check_product<bf16>(5, 70, 33, turned, how);
      check_product<f16>(65, 3, 40, turned, how);
      check_product<bf16>(1, 1, 0, turned, how);
    }
}

TEST_CASE("unscale multiplies, and finds infinity and NaN anywhere", "[cuda]") {
  const float inf = std::numeric_limits<float>::infinity();
  for (const std::size_t size : {0, 1, 255, 1000}) {
    for (const float bad : {0.0F, inf, -inf, std::nanf("")}) {
      std::vector<float> values = random_values(static_cast<std::int64_t>(size), 5);
      if (size > 0) values[size / 2] = bad == 0 ? 3.0e38F : bad;
      const OnDevice<float> g(values, 1);
      const OnDevice<std::int32_t> found(std::vector<std::int32_t>{0});
      cuda::unscale<float>(g.span(), 0.25F, found.span());
      CHECK(found.host()[0] == (size > 0 && bad != 0 ? 1 : 0));
      std::vector<std::int32_t> found_here{0};
      cpu::unscale<float>(values, 0.25F, found_here);
      CHECK(found_here == found.host());
      CHECK(same_bits(g.host(), values));
    }
  }
}
