// Products of bf16 matrices in all storage orders, compared with sums in double and, on the
// emulator, with the bits that the tensor cores' kernels must have.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cuda/matmul.hpp"
#include "tests/kernels/cuda/support.hpp"

namespace ringsmith::testing {

// A gap that makes rows a multiple of 8 elements, so that packs fit. The last pack of a row may be
// partly filled.
constexpr std::int64_t kFit = -1;

struct ProductCase {
  std::int64_t m, n, k;
  bool a_by_columns = false, b_by_columns = false;
  std::int64_t gap = 0;  // elements between rows (or columns), and before the first
  std::int64_t batches = 1;
  bool one_b = false;  // one b for the whole batch
  bool bias = false;
  kernels::Store how = kernels::Store::replace;
};

struct StoredHalves {
  std::vector<bf16> memory;
  kernels::Matrix<const bf16> matrix;  // the first of the batch, with null data
  std::int64_t batch, first;

  StoredHalves(std::int64_t rows, std::int64_t cols, bool by_columns, std::int64_t gap,
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
  [[nodiscard]] kernels::Matrix<const bf16> in(const bf16* data) const {
    kernels::Matrix<const bf16> m = matrix;
    m.data = data + first;
    return m;
  }
};

// The bits of an element on the emulator, which depend neither on the storage order nor on the
// alignment or the number of stages: a tensor core's operation adds 16 products in ascending order.
// A device's tensor core adds them in an order of its choice.
inline bf16 emulated(const ProductCase& c, const StoredHalves& a, const StoredHalves& b,
                     const StoredHalves& to, const bf16* bias, std::int64_t q, std::int64_t i,
                     std::int64_t j) {
  float sum = 0;
  for (std::int64_t begin = 0; begin < c.k; begin += 16) {
    float part = 0;
    for (std::int64_t k = begin; k < std::min(begin + 16, c.k); ++k)
      part += static_cast<float>(a.at(q, i, k)) * static_cast<float>(b.at(c.one_b ? 0 : q, k, j));
    sum += part;
  }
  if (c.bias) sum += static_cast<float>(bias[j]);
  return bf16(c.how == kernels::Store::add ? static_cast<float>(to.at(q, i, j)) + sum : sum);
}

// Tolerance: half a unit in the last place of bf16, plus the error of float sums of k terms.
template <class Multiply>
void check_product(const ProductCase& c, const Multiply& multiply) {
  const std::int64_t b_batches = c.one_b ? 1 : c.batches;
  const StoredHalves a(c.m, c.k, c.a_by_columns, c.gap, c.batches, 1),
      b(c.k, c.n, c.b_by_columns, c.gap, b_batches, 2), to(c.m, c.n, false, c.gap, c.batches, 3);
  std::vector<bf16> bias;
  for (const float x : random_values(c.bias ? c.n : 0, 4)) bias.push_back(bf16(x));
  const OnDevice<bf16> da(a.memory), db(b.memory), dc(to.memory), dbias(bias);
  kernels::Matrix<bf16> out{dc.data() + to.first, c.m, c.n, to.matrix.row_stride, 1};
  multiply(kernels::cuda::Product<bf16>{.a = a.in(da.data()),
                                        .b = b.in(db.data()),
                                        .c = out,
                                        .store = c.how,
                                        .bias = c.bias ? dbias.data() : nullptr,
                                        .batches = c.batches,
                                        .a_batch = a.batch,
                                        .b_batch = c.one_b ? 0 : b.batch,
                                        .c_batch = to.batch});
  const std::vector<bf16> got = dc.host();
  std::size_t written = 0;
  for (std::int64_t q = 0; q < c.batches; ++q)
    for (std::int64_t i = 0; i < c.m; ++i)
      for (std::int64_t j = 0; j < c.n; ++j, ++written) {
        double want = (c.how == kernels::Store::add ? to.at(q, i, j) : 0) +
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

// Calls f(case) for the sizes in all storage orders, with gaps: 0 and 8, whose rows are aligned if
// the sizes are multiples of 8; 1, whose rows never are; and kFit, whose rows always are.
template <class F>
void for_each_layout(const std::vector<ProductCase>& sizes, const F& f) {
  for (const ProductCase& size : sizes)
    for (int order = 0; order < 4; ++order)
      for (const std::int64_t gap : {std::int64_t{0}, std::int64_t{8}, std::int64_t{1}, kFit}) {
        ProductCase c = size;
        c.a_by_columns = order % 2 == 1;
        c.b_by_columns = order / 2 == 1;
        c.gap = gap;
        INFO(c.m << " x " << c.n << " x " << c.k << ", order " << order << ", gap " << gap);
        f(c);
      }
}

}  // namespace ringsmith::testing
