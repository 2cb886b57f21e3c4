// Tests versions 8 and 9 of the matrix product on bf16 operands.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cuda/matmul.hpp"
#include "tests/kernels/cuda/support.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
using namespace ringsmith::kernels;

namespace {

constexpr cuda::PipelineStages kStages[] = {cuda::PipelineStages::two, cuda::PipelineStages::four};

// A gap that makes rows a multiple of 8 elements, so that packs fit. The last pack of a row may be
// partly filled.
constexpr std::int64_t kFit = -1;

struct Case {
  std::int64_t m, n, k;
  bool a_by_columns = false, b_by_columns = false;
  std::int64_t gap = 0;  // elements between rows (or columns), and before the first
  std::int64_t batches = 1;
  bool one_b = false;  // one b for the whole batch
  bool bias = false;
  Store how = Store::replace;
};

struct Stored {
  std::vector<bf16> memory;
  Matrix<const bf16> matrix;  // the first of the batch, with null data
  std::int64_t batch, first;

  Stored(std::int64_t rows, std::int64_t cols, bool by_columns, std::int64_t gap,
         std::int64_t batches, unsigned seed) {
    const std::int64_t inner = by_columns ? rows : cols, outer = by_columns ? cols : rows;
    const bool fit = gap == kFit;
    const std::int64_t stride = fit ? (inner + 7) / 8 * 8 : inner + gap;
    first = fit ? 8 : gap;
    // With kFit, the distance between the matrices of a batch is not a multiple of 8, so packs do
    // not fit a batch.
    const std::int64_t whole = stride * outer + (fit ? 4 : gap);
    batch = batches == 1 ? 0 : whole;
    memory.assign(static_cast<std::size_t>(first + batches * whole),
                  bf16(std::numeric_limits<float>::quiet_NaN()));
    matrix = {nullptr, rows, cols, by_columns ? 1 : stride, by_columns ? stride : 1};
    const auto values = random_values(batches * rows * cols, seed);
    std::size_t next = 0;
    for (std::int64_t b = 0; b < batches; ++b)
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < cols; ++c) memory[index(b, r, c)] = bf16(values[next++]);
  }
  [[nodiscard]] std::size_t index(std::int64_t b, std::int64_t r, std::int64_t c) const {
    return static_cast<std::size_t>(first + b * batch + r * matrix.row_stride +
                                    c * matrix.col_stride);
  }
  [[nodiscard]] double at(std::int64_t b, std::int64_t r, std::int64_t c) const {
    return double{static_cast<float>(memory[index(b, r, c)])};
  }
  [[nodiscard]] Matrix<const bf16> in(const bf16* data) const {
    Matrix<const bf16> m = matrix;
    m.data = data + first;
    return m;
  }
};

#ifdef RINGSMITH_VGPU
// The bits of an element on the emulator, which depend neither on the storage order nor on the
// alignment or the number of stages: a tensor core's operation adds 16 products in ascending order.
// A device's tensor core adds them in an order of its choice.
bf16 emulated(const Case& c, const Stored& a, const Stored& b, const Stored& to, const bf16* bias,
              std::int64_t q, std::int64_t i, std::int64_t j) {
  float sum = 0;
  for (std::int64_t begin = 0; begin < c.k; begin += 16) {
    float part = 0;
    for (std::int64_t k = begin; k < std::min(begin + 16, c.k); ++k)
      part += static_cast<float>(a.at(q, i, k)) * static_cast<float>(b.at(c.one_b ? 0 : q, k, j));
    sum += part;
  }
  if (c.bias) sum += static_cast<float>(bias[j]);
  return bf16(c.how == Store::add ? static_cast<float>(to.at(q, i, j)) + sum : sum);
}
#endif

// Tolerance: half a unit in the last place of bf16, plus the error of float sums of k terms.
void check(const Case& c, cuda::PipelineStages stages) {
  const std::int64_t b_batches = c.one_b ? 1 : c.batches;
  const Stored a(c.m, c.k, c.a_by_columns, c.gap, c.batches, 1),
      b(c.k, c.n, c.b_by_columns, c.gap, b_batches, 2), to(c.m, c.n, false, c.gap, c.batches, 3);
  std::vector<bf16> bias;
  for (const float x : random_values(c.bias ? c.n : 0, 4)) bias.push_back(bf16(x));
  const OnDevice<bf16> da(a.memory), db(b.memory), dc(to.memory), dbias(bias);
  Matrix<bf16> out{dc.data() + to.first, c.m, c.n, to.matrix.row_stride, 1};
  cuda::matmul_pipelined({.a = a.in(da.data()),
                          .b = b.in(db.data()),
                          .c = out,
                          .store = c.how,
                          .bias = c.bias ? dbias.data() : nullptr,
                          .batches = c.batches,
                          .a_batch = a.batch,
                          .b_batch = c.one_b ? 0 : b.batch,
                          .c_batch = to.batch},
                         stages);
  const std::vector<bf16> got = dc.host();
  std::size_t written = 0;
  for (std::int64_t q = 0; q < c.batches; ++q)
    for (std::int64_t i = 0; i < c.m; ++i)
      for (std::int64_t j = 0; j < c.n; ++j, ++written) {
        double want = (c.how == Store::add ? to.at(q, i, j) : 0) +
                      (c.bias ? double{static_cast<float>(bias[static_cast<std::size_t>(j)])} : 0);
        double size = std::abs(want);
        for (std::int64_t k = 0; k < c.k; ++k) {
          const double term = a.at(q, i, k) * b.at(c.one_b ? 0 : q, k, j);
          want += term;
          size += std::abs(term);
        }
        const bf16 element = got[to.index(q, i, j)];
        const double off = std::abs(double{static_cast<float>(element)} - want);
        REQUIRE(off <= 0x1p-8 * std::abs(want) + 1e-6 * size);
#ifdef RINGSMITH_VGPU
        REQUIRE(element.bits == emulated(c, a, b, to, bias.data(), q, i, j).bits);
#endif
      }
  std::size_t gaps = 0;
  for (const bf16 x : got) gaps += std::isnan(static_cast<float>(x)) ? 1U : 0U;
  REQUIRE(gaps == got.size() - written);  // no gap was written
}

}  // namespace

TEST_CASE("pipelined products of bf16: sizes around the tile and the slab", "[cuda][pipelined]") {
  for (const auto stages : kStages)
    for (const Case& size : std::vector<Case>{{1, 1, 1},
                                              {1, 1, 0},
                                              {16, 8, 16},
                                              {17, 9, 33},
                                              {127, 129, 31},
                                              {128, 128, 32},
                                              {130, 40, 160},
                                              {5, 131, 257}})
      for (int order = 0; order < 4; ++order)
        // With gaps 0 and 8, packs fit if the sizes do. With gap 1, packs never fit. With kFit,
        // rows may end with a partial pack.
        for (const std::int64_t gap : {std::int64_t{0}, std::int64_t{8}, std::int64_t{1}, kFit}) {
          Case c = size;
          c.a_by_columns = order % 2 == 1;
          c.b_by_columns = order / 2 == 1;
          c.gap = gap;
          INFO(c.m << " x " << c.n << " x " << c.k << ", order " << order << ", gap " << gap
                   << ", stages " << (stages == cuda::PipelineStages::two ? 2 : 4));
          check(c, stages);
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
  for (const int version : {0, 3, 8, 9}) {
    cuda::set_matmul_version(version);
    cuda::matmul<bf16>(row_major<const bf16>(a.data(), 3, 3), row_major<const bf16>(b.data(), 3, 3),
                       row_major(c.data(), 3, 3));
    for (const bf16 x : c.host()) CHECK(static_cast<float>(x) == 6.75F);
  }
  cuda::set_matmul_version(0);
}
