// Lab 02: four kernels. A kernel is a function that thousands of threads run simultaneously; the
// work of each thread follows from its place: threadIdx in its block, blockIdx in the grid.
//
//     grid     [ block 0 ][ block 1 ][ block 2 ]            gridDim.x  = 3 blocks
//     block    [ t0 t1 t2 t3 ]                              blockDim.x = 4 threads
//     element    blockIdx.x * blockDim.x + threadIdx.x      12 threads; what if n is 1000?
//
// The grader chooses the grids and blocks, not always as you would.
#pragma once

#include <cmath>
#include <cstdint>
#include <cuda_runtime.h>

#include "labs/kit/cuda.hpp"
#include "labs/kit/todo.hpp"

namespace lab02 {

// Task 1. y[i] = a * x[i] + y[i] for 0 <= i < n. One-dimensional grids and blocks of any size, with
// up to 2^30 threads in all: more threads than elements, or many fewer.
__global__ void axpy(std::int64_t n, float a, const float* x, float* y) {
#ifdef SOLUTION
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads)
    y[i] = a * x[i] + y[i];
#else
  (void)n, (void)a, (void)x, (void)y;
  kit::todo("task 1, axpy");
#endif
}

constexpr int kMostThreads = 256;  // per block in task 2

// Task 2. Computes largest[r] and sum[r] of each row r of x, which has rows * cols elements, row by
// row. A block works on one row at a time; if there are more rows than blocks, it continues with
// another row. blockDim.x is a power of two, at most kMostThreads. The largest of no elements is
// -infinity, and the sum is 0. A NaN in a row makes both results of this row NaN. The grader counts
// loads: two per element, one for each result, must suffice (x can only be read by []).
__global__ void row_reduce(std::int64_t rows, std::int64_t cols, kit::Loads<float> x,
                           float* largest, float* sum) {
#ifdef SOLUTION
  __shared__ float best[kMostThreads], total[kMostThreads];
  const unsigned t = threadIdx.x;
  // Not fmaxf, which returns the other argument if one is NaN.
  const auto larger = [](float a, float b) { return a > b || a != a ? a : b; };
  for (std::int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    float b = -INFINITY, s = 0;
    for (std::int64_t c = t; c < cols; c += blockDim.x) {
      b = larger(b, x[r * cols + c]);
      s += x[r * cols + c];
    }
    best[t] = b;
    total[t] = s;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
      if (t < half) {
        best[t] = larger(best[t], best[t + half]);
        total[t] += total[t + half];
      }
      __syncthreads();  // outside the if: all threads must reach it
    }
    if (t == 0) {
      largest[r] = best[0];
      sum[r] = total[0];
    }
    // No barrier here: after the last one, only thread 0 reads or writes best[0] and total[0].
  }
#else
  (void)rows, (void)cols, (void)x, (void)largest, (void)sum;
  kit::todo("task 2, row_reduce");
#endif
}

constexpr int kTile = 16;  // matmul runs with blocks of kTile x kTile threads

// Task 3, on the host. Returns the grid for a product of m x n elements.
inline dim3 matmul_grid(std::int64_t m, std::int64_t n) {
#ifdef SOLUTION
  return {unsigned((n + kTile - 1) / kTile), unsigned((m + kTile - 1) / kTile)};
#else
  (void)m, (void)n;
  kit::todo("task 3, matmul_grid");
#endif
}

// Task 3. c = a * b: a is m x k, b is k x n, c is m x n, all row by row; m, n >= 1, and k may be 0.
// Memory is slow: each element that a block loads must serve kTile threads. The grader counts loads
// (a and b can only be read by []).
__global__ void matmul(std::int64_t m, std::int64_t n, std::int64_t k, kit::Loads<float> a,
                       kit::Loads<float> b, float* c) {
#ifdef SOLUTION
  __shared__ float tile_a[kTile][kTile], tile_b[kTile][kTile];
  const int x = int(threadIdx.x), y = int(threadIdx.y);
  const std::int64_t i = std::int64_t{blockIdx.y} * kTile + y;
  const std::int64_t j = std::int64_t{blockIdx.x} * kTile + x;
  float sum = 0;
  for (std::int64_t k0 = 0; k0 < k; k0 += kTile) {
    tile_a[y][x] = i < m && k0 + x < k ? a[i * k + k0 + x] : 0;
    tile_b[y][x] = k0 + y < k && j < n ? b[(k0 + y) * n + j] : 0;
    __syncthreads();  // the tiles are complete
    for (int e = 0; e < kTile; ++e) sum += tile_a[y][e] * tile_b[e][x];
    __syncthreads();  // all threads are done with them: they may be overwritten
  }
  if (i < m && j < n) c[i * n + j] = sum;
#else
  (void)m, (void)n, (void)k, (void)a, (void)b, (void)c;
  kit::todo("task 3, matmul");
#endif
}

struct Sgd {
  float lr, momentum, decay;
};

// Task 4. Makes one step of SGD with momentum, in one pass over the arrays instead of one pass per
// line:
//
//     d    = g[i] + decay * p[i]
//     v[i] = momentum * v[i] + d
//     p[i] = p[i] - lr * v[i]
//
// sgd<4> moves four floats per load or store (float4: 16 bytes) wherever it can, and sgd<1> one. n
// need not be a multiple of 4. Grids are one-dimensional and of any size, as in task 1. sgd_width
// decides which of the two may run; sgd<4> does not check addresses. A misaligned float4 access
// stops sgd<4>, as on a device, which shows the grader that sgd<4> moves four floats at a time.
template <int kWidth>
__global__ void sgd(std::int64_t n, Sgd s, const float* g, float* p, float* v) {
#ifdef SOLUTION
  const auto step = [s](float gi, float& pi, float& vi) {
    const float d = gi + s.decay * pi;
    vi = s.momentum * vi + d;
    pi = pi - s.lr * vi;
  };
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  std::int64_t done = 0;
  if constexpr (kWidth == 4) {
    const auto* const g4 = reinterpret_cast<const float4*>(g);
    auto* const p4 = reinterpret_cast<float4*>(p);
    auto* const v4 = reinterpret_cast<float4*>(v);
    for (std::int64_t i = first; i < n / 4; i += threads) {
      const float4 gi = g4[i];
      float4 pi = p4[i], vi = v4[i];
      step(gi.x, pi.x, vi.x);
      step(gi.y, pi.y, vi.y);
      step(gi.z, pi.z, vi.z);
      step(gi.w, pi.w, vi.w);
      p4[i] = pi;
      v4[i] = vi;
    }
    done = n / 4 * 4;
  }
  for (std::int64_t i = done + first; i < n; i += threads) step(g[i], p[i], v[i]);
#else
  (void)n, (void)s, (void)g, (void)p, (void)v;
  kit::todo("task 4, sgd");
#endif
}

// Task 4, on the host. Returns the width that may run on these arrays: 4 if allowed, else 1. A
// device stops the kernel at a float4 whose address is not a multiple of 16, and a gradient may
// begin anywhere in a larger array.
inline int sgd_width(const float* g, const float* p, const float* v) {
#ifdef SOLUTION
  const auto aligned = [](const float* q) { return reinterpret_cast<std::uintptr_t>(q) % 16 == 0; };
  return aligned(g) && aligned(p) && aligned(v) ? 4 : 1;
#else
  (void)g, (void)p, (void)v;
  kit::todo("task 4, sgd_width");
#endif
}

}  // namespace lab02
