// Products by sgemm (kernels/cpu/gemm.hpp), which requires one stride of each matrix to be 1. Other
// matrices are packed first.
#include "kernels/matmul.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "kernels/cpu/gemm.hpp"

namespace ringsmith::kernels::cpu::fast {

namespace {

constexpr std::int64_t kOne = 1;

// sgemm requires a leading dimension of at least 1 and at least the row length, even where it has
// no effect (a single row).
struct Operand {
  const float* data;
  std::int64_t leading;
  Transpose trans;
};

Operand operand(Matrix<const float> x, std::vector<float>& packed) {
  const auto rows_lie = [](const Matrix<const float>& m) {
    return (m.col_stride == 1 || m.cols == 1) && (m.row_stride >= m.cols || m.rows == 1);
  };
  if (rows_lie(x)) return {x.data, std::max({x.row_stride, x.cols, kOne}), Transpose::no};
  if (rows_lie(x.t())) return {x.data, std::max({x.col_stride, x.rows, kOne}), Transpose::yes};
  packed.resize(static_cast<std::size_t>(x.rows * x.cols));
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c)
      packed[static_cast<std::size_t>(r * x.cols + c)] = x(r, c);
  return {packed.data(), std::max(x.cols, kOne), Transpose::no};
}

// Returns the Gemm for a b, without c. Packs operands into the vectors if needed.
Gemm product(Matrix<const float> a, Matrix<const float> b, std::vector<float>& packed_a,
             std::vector<float>& packed_b) {
  const Operand left = operand(a, packed_a), right = operand(b, packed_b);
  return {.trans_a = left.trans,
          .trans_b = right.trans,
          .m = a.rows,
          .n = b.cols,
          .k = a.cols,
          .a = left.data,
          .lda = left.leading,
          .b = right.data,
          .ldb = right.leading};
}

}  // namespace

void matmul(Matrix<const float> a, Matrix<const float> b, Matrix<float> c, Store store) {
  if (c.rows == 0 || c.cols == 0) return;
  if (c.col_stride != 1 && c.row_stride == 1) {  // C^T = B^T A^T is row-major
    fast::matmul(b.t(), a.t(), c.t(), store);
    return;
  }
  std::vector<float> packed_a, packed_b, packed_c;
  Gemm gemm = product(a, b, packed_a, packed_b);
  const bool direct = c.col_stride == 1 || c.cols == 1;
  if (!direct) packed_c.resize(static_cast<std::size_t>(c.rows * c.cols));
  gemm.beta = direct && store == Store::add ? 1.0F : 0.0F;
  gemm.c = direct ? c.data : packed_c.data();
  gemm.ldc = direct ? std::max(c.row_stride, c.cols) : c.cols;
  sgemm(gemm);
  if (direct) return;
  for (std::int64_t i = 0; i < c.rows; ++i)
    for (std::int64_t j = 0; j < c.cols; ++j) {
      const float value = packed_c[static_cast<std::size_t>(i * c.cols + j)];
      c(i, j) = store == Store::add ? c(i, j) + value : value;
    }
}

void linear(Matrix<const float> x, Matrix<const float> w, std::span<const float> bias,
            Matrix<float> y) {
  if (y.rows == 0 || y.cols == 0) return;
  std::vector<float> packed_x, packed_w;
  Gemm gemm = product(x, w.t(), packed_x, packed_w);
  gemm.bias = bias.empty() ? nullptr : bias.data();
  gemm.c = y.data;
  gemm.ldc = y.row_stride;
  sgemm(gemm);
}

// Sums strips of columns in registers over blocks of rows, then adds the blocks. Thus x is read
// once, and a sum is a chain of at most kRows additions per block plus one addition per block.
void column_sum(Matrix<const float> x, std::span<float> sums, Store store) {
  constexpr std::int64_t kRows = 128, kLanes = 64;
  if (store == Store::replace) std::fill(sums.begin(), sums.end(), 0.0F);
  for (std::int64_t first = 0; first < x.rows; first += kRows) {
    const std::int64_t last = std::min(x.rows, first + kRows);
    std::int64_t c = 0;
    if (x.col_stride == 1) {
      for (; c + kLanes <= x.cols; c += kLanes) {
        std::array<float, kLanes> lane{};
        for (std::int64_t r = first; r < last; ++r) {
          const float* row = x.data + r * x.row_stride + c;
          for (std::size_t k = 0; k < kLanes; ++k) lane[k] += row[k];
        }
        for (std::size_t k = 0; k < kLanes; ++k) sums[static_cast<std::size_t>(c) + k] += lane[k];
      }
    }
    for (; c < x.cols; ++c) {
      float sum = 0;
      for (std::int64_t r = first; r < last; ++r) sum += x(r, c);
      sums[static_cast<std::size_t>(c)] += sum;
    }
  }
}

}  // namespace ringsmith::kernels::cpu::fast
