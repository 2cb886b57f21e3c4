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

#include <type_traits>

#include "kernels/attention.hpp"
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/intrinsics.cuh"
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

// The head and the tile of its rows on which a block works. The grid has heads x tiles x batches:
// batches change slowest, so that blocks that run together share a few sequences, whose keys and
// values stay in L2. With causal attention, late queries have the most work, so they start first
// (late_first).
struct HeadTile {
  std::int64_t batch = blockIdx.z, head = blockIdx.x;
  int first;  // row

  __device__ explicit HeadTile(bool late_first)
      : first(static_cast<int>(late_first ? gridDim.y - 1 - blockIdx.y : blockIdx.y) *
              kTensorRows) {}
};
constexpr std::int64_t kMostBatches = 65535, kMostTiles = 65535;  // of a grid

// True if pieces of kCopy elements of all rows are aligned for cp.async, and rows consist of whole
// pieces.
inline bool half_packs(const Heads<const bf16>& h, const AttentionShape& s) {
  return aligned_for(h.data, kCopy) && h.batch_stride % kCopy == 0 && h.head_stride % kCopy == 0 &&
         h.token_stride % kCopy == 0 && s.dim % kCopy == 0;
}

// Copies the rows of a head into shared memory, tile after tile. A thread copies one piece of every
// kApart-th row, and keeps the address of its next piece: it adds to the address instead of
// computing one for each piece. Elements beyond the last row or column become 0.
template <int dim, int rows>
class TileCopies {
 public:
  // The first tile begins at row `first`.
  __device__ TileCopies(const Heads<const bf16>& h, const HeadTile& job, const AttentionShape& s,
                        const bool& packs, std::int64_t first)
      : next_(h.head(job.batch, job.head) + (first + row()) * h.token_stride + column()),
        stride_(h.token_stride),
        s_(s),
        packs_(packs) {}

  // Starts the copies of the next tile, which begins at row `first`. If not `packs`, they are
  // complete on return.
  __device__ void start(bf16* tile, int first) {
    bf16* const to = tile + row() * kRowStride<dim> + column();
    const int width = static_cast<int>(s_.dim) - column();  // <= 0 where dim is smaller
    const int left = width > 0 ? static_cast<int>(s_.tokens) - first - row() : 0;
    if (packs_) {
#pragma unroll
      for (int r = 0; r < rows; r += kApart, next_ += kApart * stride_)
        copy_async_or_zeros(to + r * kRowStride<dim>, next_, r < left);
    } else {
#pragma unroll 1
      for (int r = 0; r < rows; r += kApart, next_ += kApart * stride_)
#pragma unroll 1
        for (int q = 0; q < kCopy; ++q)
          to[r * kRowStride<dim> + q] = r < left && q < width ? next_[q] : bf16();
    }
  }

 private:
  static constexpr int kAcross = dim / kCopy, kApart = kTensorThreads / kAcross;
  static_assert(rows % kApart == 0);
  __device__ static int row() { return static_cast<int>(threadIdx.x) / kAcross; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) % kAcross * kCopy; }

  const bf16* next_;
  // References to the kernel's argument keep these values in constant memory, not in registers.
  const std::int64_t& stride_;
  const AttentionShape& s_;
  const bool& packs_;
};

// Sums of a warp: 16 rows x n columns as tiles of 16 x 8.
template <int n>
using HalfSums = float[n / 8][4];

// sums += A B^T, where A is the 16 rows of a tile that start at `row`, and B the `n` rows of
// another tile.
template <int dim, int n>
__device__ void add_scores(HalfSums<n>& sums, const bf16* a, int row, const bf16* b) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, r = lane % 8, m = lane / 8;
  const bf16* const from_a = a + (row + m % 2 * 8 + r) * kRowStride<dim> + m / 2 * 8;
  const bf16* const from_b = b + (m / 2 * 8 + r) * kRowStride<dim> + m % 2 * 8;
  each_constant<dim / 16>([&](auto d) {
    constexpr int kBytes = sizeof(bf16), kD = 16 * kBytes * decltype(d)::value;
    std::uint32_t left[4];
    load_matrices<kD>(left, from_a);
    each_constant<n / 16>([&](auto pair) {
      constexpr int kPair = decltype(pair)::value;
      std::uint32_t right[4];
      load_matrices<kPair * 16 * kRowStride<dim> * kBytes + kD>(right, from_b);
      multiply_fragments(sums[2 * kPair], left, {right[0], right[1]});
      multiply_fragments(sums[2 * kPair + 1], left, {right[2], right[3]});
    });
  });
}

// out += P B, with P given as the sums of a score product over the n rows of B.
template <int dim, int n>
__device__ void add_mix(HalfSums<dim>& out, const HalfSums<n>& p, const bf16* b) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, r = lane % 8, m = lane / 8;
  const bf16* const from = b + (m % 2 * 8 + r) * kRowStride<dim> + m / 2 * 8;
  each_constant<n / 16>([&](auto k) {
    constexpr int kBytes = sizeof(bf16), kK = decltype(k)::value;
    const float(&lo)[4] = p[2 * kK];
    const float(&hi)[4] = p[2 * kK + 1];
    const std::uint32_t left[4] = {two_halves(lo[0], lo[1]), two_halves(lo[2], lo[3]),
                                   two_halves(hi[0], hi[1]), two_halves(hi[2], hi[3])};
    each_constant<dim / 16>([&](auto pair) {
      constexpr int kPair = decltype(pair)::value;
      std::uint32_t right[4];
      load_matrices_transposed<(kK * kRowStride<dim> + kPair) * 16 * kBytes>(right, from);
      multiply_fragments(out[2 * kPair], left, {right[0], right[1]});
      multiply_fragments(out[2 * kPair + 1], left, {right[2], right[3]});
    });
  });
}

// Position of element q of tile j in a lane's sums: row 0 to 15 of the warp, and column.
__device__ inline int row_of(int q) {
  return static_cast<int>(threadIdx.x) % kWarp / 4 + q / 2 * 8;
}
__device__ inline int column_of(int j, int q) {
  return 8 * j + static_cast<int>(threadIdx.x) % 4 * 2 + q % 2;
}

// True if two neighbours in a row may be stored by one instruction.
inline bool half_pairs(const Heads<bf16>& h, const AttentionShape& s) {
  return aligned_for(h.data, 2) && h.batch_stride % 2 == 0 && h.head_stride % 2 == 0 &&
         h.token_stride % 2 == 0 && s.dim % 2 == 0;
}

// Stores a warp's 16 rows, starting at row `first`, each multiplied by its factor.
template <int dim>
__device__ void store_rows(const HalfSums<dim>& sums, const float (&factor)[2],
                           const Heads<bf16>& to, const HeadTile& job, const AttentionShape& s,
                           bool pairs, std::int64_t first) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const std::int64_t row = first + row_of(2 * h);
    bf16* const at = to.head(job.batch, job.head) + row * to.token_stride;
    const int width = row < s.tokens ? static_cast<int>(s.dim) : 0;
#pragma unroll
    for (int j = 0; j < dim / 8; ++j) {
      const int column = column_of(j, 0);
      const std::uint32_t two =
          two_halves(sums[j][2 * h] * factor[h], sums[j][2 * h + 1] * factor[h]);
      if (pairs && column < width) {
        *reinterpret_cast<std::uint32_t*>(at + column) = two;
      } else {
        if (column < width) at[column].bits = static_cast<std::uint16_t>(two);
        if (column + 1 < width) at[column + 1].bits = static_cast<std::uint16_t>(two >> 16);
      }
    }
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
void launch_tiles(void (*kernel)(Parameters...), const AttentionShape& s, std::size_t elements,
                  const Arguments&... arguments) {
  const std::size_t bytes = elements * sizeof(bf16);
  if (bytes > std::size_t{48} << 10)
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(bytes)));
  if (s.rows() > 0)
    launch(
        kernel,
        dim3(static_cast<unsigned>(s.heads), static_cast<unsigned>(ceil_div(s.tokens, kTensorRows)),
             static_cast<unsigned>(s.batch)),
        kTensorThreads, bytes, stream(), arguments...);
}

}  // namespace ringsmith::kernels::cuda
