// Tiles of attention on tensor cores, for the forward and the backward pass.
//
// Operands are bf16, sums are floats. A block of 4 warps has a tile of 64 rows, 16 per warp, and
// loops over tiles of the other side (keys or queries). Shared memory contains the other side's
// tiles in two stages: one is in use while cp.async copies the next. There are two kinds of
// products:
//
//   scores    S (16 x n) += A B^T    A and B stored as [row][d]:   Q K^T, dO V^T, K Q^T, V dO^T
//   mix       O (16 x d) += P B      B stored as [row][d]:         P V,   dS K,   P^T dO, dS^T Q
//
// P and dS are never stored in memory: the sums of a score product, rounded to bf16, already have
// the layout of the next product's left operand (mma.cuh: two adjacent tiles of C are one of A).
#pragma once

#include "kernels/attention.hpp"
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/elementwise_math.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/pack.cuh"

namespace ringsmith::kernels::cuda {

constexpr int kTensorThreads = 128, kTensorRows = 64;  // per block
constexpr int kCopy = 8;                               // elements per cp.async

// Stride of a head's rows in shared memory: 16 bytes more than a row, so that the 8 rows of an
// ldmatrix are in different banks.
template <int dim>
constexpr int kRowStride = dim + kCopy;
template <int dim, int rows>
constexpr int kTileSize = rows* kRowStride<dim>;  // elements

// A (batch, head) as rows of bf16 in memory.
struct HalfRows {
  const bf16* data;
  std::int64_t stride, rows, dim;
  bool packs;  // aligned for cp.async
};
inline bool half_packs(const Heads<const bf16>& h) {
  return aligned_for(h.data, kCopy) && h.batch_stride % kCopy == 0 && h.head_stride % kCopy == 0 &&
         h.token_stride % kCopy == 0;
}

// Starts copies of rows first to first + count - 1. Elements beyond the last row or column become
// 0.
template <int dim, int count>
__device__ void fetch_rows(bf16* tile, const HalfRows& from, std::int64_t first) {
  constexpr int kAcross = dim / kCopy;
  for (int e = static_cast<int>(threadIdx.x); e < count * kAcross; e += kTensorThreads) {
    const int row = e / kAcross, d = e % kAcross * kCopy;
    bf16* const to = tile + row * kRowStride<dim> + d;
    const std::int64_t left = first + row < from.rows ? smaller(from.dim - d, kCopy) : 0;
    const int n = left > 0 ? static_cast<int>(left) : 0;
    const bf16* const source = from.data + (first + row) * from.stride + d;
    if (from.packs) {
      copy_async(to, n > 0 ? source : from.data, n * static_cast<int>(sizeof(bf16)));
    } else {
      for (int q = 0; q < kCopy; ++q) to[q] = q < n ? source[q] : bf16(0.0F);
    }
  }
}

// Sums of a warp: 16 rows x n columns as tiles of 16 x 8.
template <int n>
using HalfSums = float[n / 8][4];

// sums += A B^T, where A is 16 rows of a tile, from `row` on, and B the `n` rows of another tile.
template <int dim, int n>
__device__ void add_scores(HalfSums<n>& sums, const bf16* a, int row, const bf16* b) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, r = lane % 8, m = lane / 8;
#pragma unroll
  for (int d = 0; d < dim; d += 16) {
    std::uint32_t left[4];
    load_matrices(left, a + (row + m % 2 * 8 + r) * kRowStride<dim> + d + m / 2 * 8);
#pragma unroll
    for (int j = 0; j < n; j += 16) {
      std::uint32_t right[4];
      load_matrices(right, b + (j + m / 2 * 8 + r) * kRowStride<dim> + d + m % 2 * 8);
      multiply_fragments(sums[j / 8], left, {right[0], right[1]});
      multiply_fragments(sums[j / 8 + 1], left, {right[2], right[3]});
    }
  }
}

__device__ inline std::uint32_t two_halves(float low, float high) {
  return std::uint32_t{bf16(high).bits} << 16 | bf16(low).bits;
}

// out += P B, with P given as the sums of a score product over the n rows of B.
template <int dim, int n>
__device__ void add_mix(HalfSums<dim>& out, const HalfSums<n>& p, const bf16* b) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, r = lane % 8, m = lane / 8;
#pragma unroll
  for (int k = 0; k < n; k += 16) {
    const float(&lo)[4] = p[k / 8];
    const float(&hi)[4] = p[k / 8 + 1];
    const std::uint32_t left[4] = {two_halves(lo[0], lo[1]), two_halves(lo[2], lo[3]),
                                   two_halves(hi[0], hi[1]), two_halves(hi[2], hi[3])};
#pragma unroll
    for (int d = 0; d < dim; d += 16) {
      std::uint32_t right[4];
      load_matrices_transposed(right, b + (k + m % 2 * 8 + r) * kRowStride<dim> + d + m / 2 * 8);
      multiply_fragments(out[d / 8], left, {right[0], right[1]});
      multiply_fragments(out[d / 8 + 1], left, {right[2], right[3]});
    }
  }
}

// Position of element q of tile j in a lane's sums: row 0 to 15 of the warp, and column.
__device__ inline int row_of(int q) {
  return static_cast<int>(threadIdx.x) % kWarp / 4 + q / 2 * 8;
}
__device__ inline int column_of(int j, int q) {
  return 8 * j + static_cast<int>(threadIdx.x) % 4 * 2 + q % 2;
}

// Stores a warp's 16 rows, from row `first` on, each multiplied by its factor.
template <int dim>
__device__ void store_rows(const HalfSums<dim>& sums, const float (&factor)[2], bf16* to,
                           std::int64_t stride, std::int64_t first, std::int64_t rows,
                           std::int64_t width) {
#pragma unroll
  for (int j = 0; j < dim / 8; ++j)
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const std::int64_t row = first + row_of(q), column = column_of(j, q);
      if (row < rows && column < width)
        to[row * stride + column] = bf16(sums[j][q] * factor[q / 2]);
    }
}

template <class F>
void visit_dim(std::int64_t dim, const F& f) {
  if (dim <= 32)
    f(std::integral_constant<int, 32>());
  else if (dim <= 64)
    f(std::integral_constant<int, 64>());
  else
    f(std::integral_constant<int, 128>());
}

// Dynamic shared memory above 48 KiB must be requested.
template <class... Parameters, class... Arguments>
void launch_tiles(void (*kernel)(Parameters...), std::int64_t jobs, std::size_t elements,
                  const Arguments&... arguments) {
  const std::size_t bytes = elements * sizeof(bf16);
  if (bytes > std::size_t{48} << 10)
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(bytes)));
  if (jobs > 0)
    launch(kernel, dim3(static_cast<unsigned>(jobs)), kTensorThreads, bytes, stream(),
           arguments...);
}

}  // namespace ringsmith::kernels::cuda
