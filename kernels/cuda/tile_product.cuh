// The register-blocked tile, the core of matmul version 3 and of every convolution.
//
//   C (kM x kN of it, one block)  =  A (kM x all k)  B (all k x kN)
//
//            B: kK x kN in shared memory   A block of kThreads threads loops over k. Every
//            +---------------+             slab of kK goes through shared memory once; each
//            |  :  :  |##|   |             thread keeps kR x kC sums in registers and needs
//   A        +---------------+             kR + kC shared loads for kR kC multiply-adds, where
//   +---+    +---------------+             the tiled version 2 needs two loads for one.
//   |   |    |        |  |   |
//   |###| -> |        |##| <- kR x kC of a thread
//   |   |    |        |  |   |
//   +---+    +---------------+
//
// The Problem defines A, B and C, e.g. a strided matrix, an image seen through a convolution's
// windows (no im2col in memory), or a destination to add to.
#pragma once

#include "kernels/cuda/grid.cuh"

namespace ringsmith::kernels::cuda {

// a b + c, with one rounding if there is an instruction for it.
__device__ inline float multiply_add(float a, float b, float c) {
#if defined(__CUDA_ARCH__) || defined(__FMA__)
  return fmaf(a, b, c);
#else
  return a * b + c;
#endif
}
__device__ inline double multiply_add(double a, double b, double c) {
#if defined(__CUDA_ARCH__) || defined(__FMA__)
  return fma(a, b, c);
#else
  return a * b + c;
#endif
}

template <int m, int n, int k, int rows, int columns>
struct TileShape {
  static constexpr int kM = m, kN = n, kK = k, kR = rows, kC = columns;
  static constexpr int kAcross = kN / kC;
  static constexpr int kThreads = kM / kR * kAcross;
};

// Calls load(line(i), i, k, i < lines) for all i < kLines and k < kK of a slab, spread over the
// block. If i >= lines, line(0) is passed instead of line(i). Lanes run along k or, if not along_k,
// across the lines, and a thread keeps its line.
template <int kThreads, int kK, int kLines, class Line, class Load>
__device__ void each_of_slab(bool along_k, int lines, const Line& line, const Load& load) {
  const int thread = static_cast<int>(threadIdx.x);
  if (along_k) {
    static_assert(kThreads % kK == 0);
    const int k = thread % kK;
    for (int i = thread / kK; i < kLines; i += kThreads / kK)
      load(line(i < lines ? i : 0), i, k, i < lines);
  } else {
    static_assert(kThreads % kLines == 0);
    const int i = thread % kLines;
    const auto mine = line(i < lines ? i : 0);
    for (int k = thread / kLines; k < kK; k += kThreads / kLines) load(mine, i, k, i < lines);
  }
}

// A Problem has
//   T                                 the element type
//   std::int64_t m, n;                C is m x n
//   bool a_along_k, b_along_n;        the dimensions along which A and B are contiguous
//   row(i), column(j)                 locate a row of A, a column of B for the next functions
//   T a(row, k), T b(k, column)       an element of A, of B. Called only within bounds
//   void store(i, j, sum)
// Sums over k in begin .. end - 1, in ascending order.
template <class Shape, class Problem>
__device__ void tile_product(const Problem& p, std::int64_t row, std::int64_t column,
                             std::int64_t begin, std::int64_t end) {
  using T = typename Problem::T;
  constexpr int kM = Shape::kM, kN = Shape::kN, kK = Shape::kK, kR = Shape::kR, kC = Shape::kC;
  constexpr int kPad = 16 / sizeof(T);  // neighbouring rows of a slab start in different banks
  __shared__ T slab_a[kK][kM + kPad];
  __shared__ T slab_b[kK][kN + kPad];
  const int thread = static_cast<int>(threadIdx.x);
  const int first_row = thread / Shape::kAcross * kR, first_column = thread % Shape::kAcross * kC;
  const int rows = static_cast<int>(smaller(kM, p.m - row));
  const int columns = static_cast<int>(smaller(kN, p.n - column));

  T sums[kR][kC] = {};
  for (std::int64_t k0 = begin; k0 < end; k0 += kK) {
    const int depth = static_cast<int>(smaller(kK, end - k0));
    each_of_slab<Shape::kThreads, kK, kM>(
        p.a_along_k, rows, [&](int i) { return p.row(row + i); },
        [&](const auto& from, int i, int k, bool inside) {
          slab_a[k][i] = inside && k < depth ? p.a(from, k0 + k) : T(0);
        });
    each_of_slab<Shape::kThreads, kK, kN>(
        !p.b_along_n, columns, [&](int j) { return p.column(column + j); },
        [&](const auto& from, int j, int k, bool inside) {
          slab_b[k][j] = inside && k < depth ? p.b(k0 + k, from) : T(0);
        });
    __syncthreads();
    for (int k = 0; k < kK; ++k) {
      T a[kR], b[kC];
#pragma unroll
      for (int r = 0; r < kR; ++r) a[r] = slab_a[k][first_row + r];
#pragma unroll
      for (int c = 0; c < kC; ++c) b[c] = slab_b[k][first_column + c];
        // Columns are in the outer loop and rows in the inner, because g++ vectorises this order.
#pragma unroll
      for (int c = 0; c < kC; ++c)
#pragma unroll
        for (int r = 0; r < kR; ++r) sums[r][c] = multiply_add(a[r], b[c], sums[r][c]);
    }
    __syncthreads();  // the slabs have been read
  }
#pragma unroll
  for (int r = 0; r < kR; ++r)
#pragma unroll
    for (int c = 0; c < kC; ++c)
      if (first_row + r < rows && first_column + c < columns)
        p.store(row + first_row + r, column + first_column + c, sums[r][c]);
}

}  // namespace ringsmith::kernels::cuda
