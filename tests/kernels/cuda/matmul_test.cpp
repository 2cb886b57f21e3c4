// Compares every version of the matrix product that runs here with float64.
#include "kernels/cuda/matmul.hpp"

#include <cmath>
#include <limits>

#include "kernels/matmul.hpp"
#include "tests/kernels/cuda/support.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
using namespace ringsmith::kernels;

namespace {

// A matrix stored in one of four ways: rows, columns, rows of a wider matrix, or with gaps in both
// directions. Gaps are NaN, so any read of one shows up in the result.
struct Stored {
  Matrix<float> host;
  std::vector<float> memory;

  Stored(const std::vector<float>& values, std::int64_t rows, std::int64_t cols, int layout)
      : memory(static_cast<std::size_t>(4 * (rows + 4) * (cols + 4)),
               std::numeric_limits<float>::quiet_NaN()) {
    host = {memory.data(), rows, cols, cols, 1};
    if (layout == 1) host = {memory.data(), rows, cols, 1, rows};
    if (layout == 2) host = {memory.data() + 4, rows, cols, cols + 4, 1};
    if (layout == 3) host = {memory.data() + 1, rows, cols, 2 * (cols + 1), 2};
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c)
        host(r, c) = values[static_cast<std::size_t>(r * cols + c)];
  }
  Stored(const Stored&) = delete;
  Stored& operator=(const Stored&) = delete;

  [[nodiscard]] Matrix<float> in(float* other) const {
    Matrix<float> m = host;
    m.data = other + (host.data - memory.data());
    return m;
  }
  [[nodiscard]] std::vector<float> values(std::vector<float>& from) const {
    const Matrix<float> m = in(from.data());
    std::vector<float> v;
    for (std::int64_t r = 0; r < m.rows; ++r)
      for (std::int64_t c = 0; c < m.cols; ++c) v.push_back(m(r, c));
    return v;
  }
};

std::size_t nan_count(const std::vector<float>& v) {
  std::size_t n = 0;
  for (const float x : v) n += std::isnan(x) ? 1U : 0U;
  return n;
}

// Returns a b + c (+ bias), computed in double.
std::vector<float> expected(const std::vector<float>& a, const std::vector<float>& b,
                            const std::vector<float>& c, const std::vector<float>& bias,
                            std::int64_t m, std::int64_t n, std::int64_t k) {
  std::vector<float> want;
  const auto at = [](const std::vector<float>& x, std::int64_t i) {
    return static_cast<double>(x[static_cast<std::size_t>(i)]);
  };
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = (c.empty() ? 0 : at(c, i * n + j)) + (bias.empty() ? 0 : at(bias, j));
      for (std::int64_t q = 0; q < k; ++q) sum += at(a, i * k + q) * at(b, q * n + j);
      want.push_back(static_cast<float>(sum));
    }
  return want;
}

double tolerance(const cuda::MatmulVersion& version) {
  const std::string name = version.name;
  return name.find("BF16 cores") != std::string::npos ? 2e-2 : name == "TF32 cores" ? 2e-3 : 3e-6;
}

}  // namespace

TEST_CASE("every version of the ladder multiplies odd shapes in all storage orders", "[cuda]") {
  const std::vector<std::vector<std::int64_t>> shapes = {
      {1, 1, 1},      {1, 17, 3},    {3, 1, 31},   {17, 33, 1},
      {130, 132, 36}, {64, 10, 100}, {5, 260, 17}, {33, 40, 301}};
  for (const cuda::MatmulVersion& version : cuda::matmul_versions()) {
    if (!version.available()) continue;
    for (const auto& s : shapes)
      for (int layout = 0; layout < 64; layout += s[0] < 100 ? 1 : 7) {
        INFO("version " << version.name << ", " << s[0] << "x" << s[1] << "x" << s[2] << ", layout "
                        << layout);
        const auto a_ = random_values(s[0] * s[2], 1), b_ = random_values(s[2] * s[1], 2),
                   c_ = random_values(s[0] * s[1], 3);
        const Stored a(a_, s[0], s[2], layout % 4), b(b_, s[2], s[1], layout / 4 % 4),
            c(c_, s[0], s[1], layout / 16);
        const OnDevice<float> da(a.memory), db(b.memory), dc(c.memory), dd(c.memory);
        version.run({.a = a.in(da.data()), .b = b.in(db.data()), .c = c.in(dc.data())});
        auto got = dc.host();
        REQUIRE(distance(c.values(got), expected(a_, b_, {}, {}, s[0], s[1], s[2])) <
                tolerance(version));
        REQUIRE(nan_count(got) == nan_count(c.memory));  // no gap was written
        version.run({.a = a.in(da.data()),
                     .b = b.in(db.data()),
                     .c = c.in(dd.data()),
                     .store = Store::add});
        got = dd.host();
        REQUIRE(distance(c.values(got), expected(a_, b_, c_, {}, s[0], s[1], s[2])) <
                tolerance(version));
      }
  }
}

TEST_CASE("batches and biases in every version of the ladder", "[cuda]") {
  const std::int64_t m = 33, n = 20, k = 12, batches = 5;
  const auto a = random_values(batches * m * k, 1), b = random_values(k * n, 2),
             bias = random_values(n, 3);
  std::vector<float> want;
  for (std::int64_t i = 0; i < batches; ++i) {
    const std::vector<float> part(a.begin() + i * m * k, a.begin() + (i + 1) * m * k);
    for (const float v : expected(part, b, {}, bias, m, n, k)) want.push_back(v);
  }
  for (const cuda::MatmulVersion& version : cuda::matmul_versions()) {
    if (!version.available()) continue;
    INFO("version " << version.name);
    const OnDevice<float> a_(a), b_(b), bias_(bias), c(want.size());
    version.run({.a = row_major<const float>(a_.data(), m, k),
                 .b = row_major<const float>(b_.data(), k, n),
                 .c = row_major(c.data(), m, n),
                 .bias = bias_.data(),
                 .batches = batches,
                 .a_batch = m * k,
                 .b_batch = 0,  // one matrix for the whole batch
                 .c_batch = m * n});
    CHECK(distance(c.host(), want) < tolerance(version));
  }
}

TEST_CASE("an empty sum on a device is zero, replaces NaN, and adds nothing", "[cuda]") {
  for (const cuda::MatmulVersion& version : cuda::matmul_versions()) {
    if (!version.available()) continue;
    const OnDevice<float> c(std::vector<float>(6, std::numeric_limits<float>::quiet_NaN())),
        d(std::vector<float>(6, 2.0F)), none(std::vector<float>{});
    const auto a = row_major<const float>(none.data(), 2, 0);
    const auto b = row_major<const float>(none.data(), 0, 3);
    version.run({.a = a, .b = b, .c = row_major(c.data(), 2, 3)});
    version.run({.a = a, .b = b, .c = row_major(d.data(), 2, 3), .store = Store::add});
    CHECK(c.host() == std::vector<float>(6, 0.0F));
    CHECK(d.host() == std::vector<float>(6, 2.0F));
    version.run({.a = row_major<const float>(none.data(), 0, 5),
                 .b = row_major<const float>(d.data(), 5, 1),
                 .c = row_major(none.data(), 0, 1)});
  }
}

TEST_CASE("NaN and inf come through a product on a device, also against a zero", "[cuda]") {
  for (const cuda::MatmulVersion& version : cuda::matmul_versions()) {
    if (!version.available()) continue;
    INFO("version " << version.name);
    const std::int64_t n = 130;
    std::vector<float> a(static_cast<std::size_t>(n * n)), b(a);
    a[1] = std::numeric_limits<float>::quiet_NaN();                           // row 0
    a[static_cast<std::size_t>(n)] = std::numeric_limits<float>::infinity();  // row 1
    const OnDevice<float> a_(a), b_(b), c(a.size());
    version.run({.a = row_major<const float>(a_.data(), n, n),
                 .b = row_major<const float>(b_.data(), n, n),
                 .c = row_major(c.data(), n, n)});
    const auto got = c.host();
    CHECK(std::isnan(got[0]));
    CHECK(std::isnan(got[static_cast<std::size_t>(n)]));  // inf * 0
    CHECK(got[static_cast<std::size_t>(2 * n)] == 0.0F);
  }
}

TEST_CASE("the version of the ladder can be chosen; one that does not exist is refused", "[cuda]") {
  const int best = cuda::matmul_version();
  for (const cuda::MatmulVersion& version : cuda::matmul_versions()) {
    if (!version.available()) continue;
    cuda::set_matmul_version(version.number);
    CHECK(cuda::matmul_version() == version.number);
    const OnDevice<float> a(std::vector<float>{2}), b(std::vector<float>{3}), c(1);
    cuda::matmul<float>(row_major<const float>(a.data(), 1, 1),
                        row_major<const float>(b.data(), 1, 1), row_major(c.data(), 1, 1));
    CHECK(c.host()[0] == 6.0F);
  }
  CHECK_THROWS_WITH(cuda::set_matmul_version(11), ContainsSubstring("use 1 to 10"));
  cuda::set_matmul_version(0);
  CHECK(cuda::matmul_version() == best);
}

TEST_CASE("linear, its gradients and column sums on a device, for float and double", "[cuda]") {
  for (const std::int64_t n : {1, 3, 64, 129})
    for (const bool with_bias : {false, true}) {
      const std::int64_t in = 65, out = 31;
      const auto x = random_values(n * in, 1), w = random_values(out * in, 2),
                 b = random_values(with_bias ? out : 0, 3), dy = random_values(n * out, 4);
      const OnDevice<float> x_(x), w_(w), b_(b), dy_(dy), y(dy.size()), dw(w.size()),
          db(static_cast<std::size_t>(out));
      const OnDevice<double> x64(widen(x)), w64(widen(w)), b64(widen(b)), y64(dy.size());
      std::vector<double> want_y(dy.size()), want_dw(w.size()),
          want_db(static_cast<std::size_t>(out));
      const auto wide_x = widen(x), wide_w = widen(w), wide_dy = widen(dy);
      cpu::linear<double>(row_major(wide_x.data(), n, in), row_major(wide_w.data(), out, in),
                          widen(b), row_major(want_y.data(), n, out));
      cpu::matmul<double>(row_major(wide_dy.data(), n, out).t(), row_major(wide_x.data(), n, in),
                          row_major(want_dw.data(), out, in));
      cpu::column_sum<double>(row_major(wide_dy.data(), n, out), want_db);
      cuda::linear<float>(row_major<const float>(x_.data(), n, in),
                          row_major<const float>(w_.data(), out, in), b_.view(),
                          row_major(y.data(), n, out));
      cuda::linear<double>(row_major<const double>(x64.data(), n, in),
                           row_major<const double>(w64.data(), out, in), b64.view(),
                           row_major(y64.data(), n, out));
      cuda::matmul<float>(row_major<const float>(dy_.data(), n, out).t(),
                          row_major<const float>(x_.data(), n, in), row_major(dw.data(), out, in));
      cuda::column_sum<float>(row_major<const float>(dy_.data(), n, out), db.span());
      CHECK(distance(y.host(), narrow(want_y)) < 2e-6);
      CHECK(distance(dw.host(), narrow(want_dw)) < 2e-6);
      CHECK(distance(db.host(), narrow(want_db)) < 2e-6);
      const auto got64 = y64.host();
      for (std::size_t i = 0; i < got64.size(); ++i)
        REQUIRE(std::abs(got64[i] - want_y[i]) < 1e-12);
      cuda::column_sum<float>(row_major<const float>(dy_.data(), n, out), db.span(), Store::add);
      for (double& v : want_db) v *= 2;
      CHECK(distance(db.host(), narrow(want_db)) < 2e-6);
    }
}

TEST_CASE("a batched product on a device equals one on the CPU", "[cuda]") {
  const std::int64_t m = 7, n = 9, k = 5;
  const auto a = random_values(3 * m * k, 1), b = random_values(3 * n * k, 2);
  const OnDevice<float> a_(a), b_(b), c(static_cast<std::size_t>(3 * m * n));
  std::vector<float> want(static_cast<std::size_t>(3 * m * n));
  const Batch batch{3, m * k, n * k, m * n};
  cuda::matmul_batch<float>(row_major<const float>(a_.data(), m, k),
                            row_major<const float>(b_.data(), n, k).t(), row_major(c.data(), m, n),
                            batch);
  cpu::matmul_batch<float>(row_major(a.data(), m, k), row_major(b.data(), n, k).t(),
                           row_major(want.data(), m, n), batch);
  CHECK(distance(c.host(), want) < 1e-6);
}
