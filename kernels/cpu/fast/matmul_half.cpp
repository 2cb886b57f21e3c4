// Products of f16 and bf16 matrices with float sums.
//
// C is computed block by block, with the sums of a block in cache as floats. Blocks of A and B are
// widened into cache in their stored order, and the float product (kernels/cpu/gemm.hpp) adds their
// products to the sums. Every element therefore equals, bit for bit, the float product of the
// widened matrices, rounded once. An element of A is widened once per block column of C, and an
// element of B once per block row.
//
// By default, products of bf16 use AVX-512-BF16 or AMX-BF16 if the processor has them (and OpenBLAS
// is not selected), although these add in a different order (matmul_bf16.hpp).
#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "kernels/cpu/fast/matmul_bf16.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/half_vector.hpp"
#include "kernels/matmul.hpp"
#include "kernels/mode.hpp"
#include "kernels/parallel.hpp"

namespace ringsmith::kernels::cpu::fast {

namespace {

constexpr std::int64_t kDepth = 256;  // columns of A and rows of B processed at a time

struct Range {
  std::int64_t begin, size;
};

std::int64_t blocks(std::int64_t n, std::int64_t side) { return (n + side - 1) / side; }

// Number of rows and columns of a block of C. Large blocks copy less. Small blocks are used if
// large ones would leave some threads with less work. The size does not affect the bits.
template <class T>
std::int64_t side_of_block(const Matrix<T>& c) {
  constexpr std::int64_t kLarge = 512, kSmall = 256;
  return blocks(c.rows, kLarge) * blocks(c.cols, kLarge) % threads() == 0 ? kLarge : kSmall;
}

template <class T>
Matrix<T> part(const Matrix<T>& m, Range rows, Range cols) {
  return {m.data + rows.begin * m.row_stride + cols.begin * m.col_stride, rows.size, cols.size,
          m.row_stride, m.col_stride};
}

// Returns a dense float copy of m in `memory`, column-major if m is stored by columns.
template <class T>
Matrix<const float> widened(const Matrix<const T>& m, std::vector<float>& memory) {
  memory.resize(static_cast<std::size_t>(m.rows * m.cols));
  const bool by_columns = m.row_stride == 1 && m.col_stride != 1;
  const Matrix<const T> lying = by_columns ? m.t() : m;
  for (std::int64_t r = 0; r < lying.rows; ++r) {
    float* to = memory.data() + r * lying.cols;
    if (lying.col_stride == 1)
      widen(lying.data + r * lying.row_stride, to, lying.cols);
    else
      for (std::int64_t c = 0; c < lying.cols; ++c) to[c] = static_cast<float>(lying(r, c));
  }
  const auto dense = row_major<const float>(memory.data(), lying.rows, lying.cols);
  return by_columns ? dense.t() : dense;
}

template <class T>
void product(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<float>& sums,
             Store store) {
  if constexpr (std::is_same_v<T, bf16>)
    if (const Bf16Products how = bf16_products();
        how != Bf16Products::widened && products() == Products::own)
      return product_bf16(a, b, sums, store, how);
  thread_local std::vector<float> a_memory, b_memory;
  const Matrix<const float> wide_a = widened(a, a_memory), wide_b = widened(b, b_memory);
  const auto transposed = [](const auto& m) { return m.col_stride != 1 && m.row_stride == 1; };
  const bool a_turned = transposed(wide_a), b_turned = transposed(wide_b);
  sgemm({.trans_a = a_turned ? Transpose::yes : Transpose::no,
         .trans_b = b_turned ? Transpose::yes : Transpose::no,
         .m = sums.rows,
         .n = sums.cols,
         .k = a.cols,
         .a = wide_a.data,
         .lda = a_turned ? a.rows : a.cols,  // both are dense
         .b = wide_b.data,
         .ldb = b_turned ? b.rows : b.cols,
         .beta = store == Store::add ? 1.0F : 0.0F,
         .c = sums.data,
         .ldc = sums.row_stride});
}

template <class T>
void block_of_c(const Matrix<const T>& a, const Matrix<const T>& b, std::span<const T> bias,
                const Matrix<T>& c, Store store) {
  struct alignas(64) CacheLine {
    std::array<float, kTileSide> floats;
  };
  thread_local std::vector<CacheLine> memory;
  const std::int64_t stride = whole_tiles(c.cols);
  memory.resize(static_cast<std::size_t>(whole_tiles(c.rows) * stride / kTileSide));
  const Matrix<float> sums{reinterpret_cast<float*>(memory.data()), c.rows, c.cols, stride, 1};
  Store into_sums = Store::add;
  if (store == Store::replace && bias.empty())
    into_sums = Store::replace;
  else
    for (std::int64_t r = 0; r < c.rows; ++r)
      for (std::int64_t j = 0; j < c.cols; ++j)
        sums(r, j) =
            static_cast<float>(store == Store::add ? c(r, j) : bias[static_cast<std::size_t>(j)]);
  Range k{0, 0};
  do {  // at least once: a product over an empty k is 0
    k.size = std::min(kDepth, a.cols - k.begin);
    product(part(a, {0, a.rows}, k), part(b, k, {0, b.cols}), sums, into_sums);
    into_sums = Store::add;
    k.begin += k.size;
  } while (k.begin < a.cols);
  for (std::int64_t r = 0; r < c.rows; ++r) {
    const float* from = sums.data + r * stride;
    if (c.col_stride == 1)
      narrow(from, c.data + r * c.row_stride, c.cols);
    else
      for (std::int64_t j = 0; j < c.cols; ++j) c(r, j) = T(from[j]);
  }
}

}  // namespace

template <class T>
void matmul_half(Matrix<const T> a, Matrix<const T> b, std::span<const T> bias, Matrix<T> c,
                 Store store) {
  const std::int64_t side = side_of_block(c), across = blocks(c.cols, side);
  parallel_for(blocks(c.rows, side) * across, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i / across * side, col = i % across * side;
      const Range rows{row, std::min(side, c.rows - row)};
      const Range cols{col, std::min(side, c.cols - col)};
      const Range depth{0, a.cols};
      const auto at = static_cast<std::size_t>(cols.begin);
      const auto some = bias.empty() ? bias : bias.subspan(at, static_cast<std::size_t>(cols.size));
      block_of_c(part(a, rows, depth), part(b, depth, cols), some, part(c, rows, cols), store);
    }
  });
}

template void matmul_half<f16>(Matrix<const f16>, Matrix<const f16>, std::span<const f16>,
                               Matrix<f16>, Store);
template void matmul_half<bf16>(Matrix<const bf16>, Matrix<const bf16>, std::span<const bf16>,
                                Matrix<bf16>, Store);

}  // namespace ringsmith::kernels::cpu::fast
