// Unusual and correct: every thread of axpy processes one consecutive range. In row_reduce, one
// thread reduces a row from the partial results of all others. matmul alternates between two pairs
// of tiles, so it needs only one barrier per pair. In sgd, the thread that finds fewer than four
// elements left processes them one by one.
#pragma once

#include <cmath>
#include <cstdint>
#include <cuda_runtime.h>
#include <limits>

#include "labs/kit/cuda.hpp"

namespace lab02 {

__global__ void axpy(std::int64_t n, float a, const float* x, float* y) {
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t me = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::int64_t i = n * me / threads; i < n * (me + 1) / threads; ++i) y[i] += a * x[i];
}

constexpr int kMostThreads = 256;

__global__ void row_reduce(std::int64_t rows, std::int64_t cols, kit::Loads<float> x,
                           float* largest, float* sum) {
  __shared__ float best[2][kMostThreads], total[2][kMostThreads];
  int half = 0;  // two alternating sets: a row's results are read while the next row is reduced
  for (std::int64_t r = blockIdx.x; r < rows; r += gridDim.x, half ^= 1) {
    float b = -std::numeric_limits<float>::infinity(), s = 0;
    for (std::int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
      const float value = x[r * cols + c];
      if (!(value <= b)) b = std::isnan(b) ? b : value;
      s += value;
    }
    best[half][threadIdx.x] = b;
    total[half][threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.x != blockDim.x - 1) continue;
    for (unsigned t = 0; t + 1 < blockDim.x; ++t) {
      if (!(best[half][t] <= b)) b = std::isnan(b) ? b : best[half][t];
      s += total[half][t];
    }
    largest[r] = b;
    sum[r] = s;
  }
}

constexpr int kTile = 16;

inline dim3 matmul_grid(std::int64_t m, std::int64_t n) {
  // In each direction, there may be one extra block, which has no work.
  return {unsigned(n / kTile + 1), unsigned(m / kTile + 1)};
}

__global__ void matmul(std::int64_t m, std::int64_t n, std::int64_t k, kit::Loads<float> a,
                       kit::Loads<float> b, float* c) {
  __shared__ float tile_a[2][kTile][kTile + 1], tile_b[2][kTile][kTile + 1];
  const int x = int(threadIdx.x), y = int(threadIdx.y);
  const std::int64_t i = std::int64_t{blockIdx.y} * kTile + y,
                     j = std::int64_t{blockIdx.x} * kTile + x;
  if (std::int64_t{blockIdx.y} * kTile >= m || std::int64_t{blockIdx.x} * kTile >= n) return;
  float sum = 0;
  for (std::int64_t k0 = 0; k0 < k; k0 += kTile) {
    const auto half = (k0 / kTile) % 2;
    tile_a[half][y][x] = 0;
    tile_b[half][y][x] = 0;
    if (i < m && k0 + x < k) tile_a[half][y][x] = a[i * k + k0 + x];
    if (k0 + y < k && j < n) tile_b[half][y][x] = b[(k0 + y) * n + j];
    __syncthreads();
    for (int e = 0; e < kTile; ++e) sum = fmaf(tile_a[half][y][e], tile_b[half][e][x], sum);
  }
  if (i < m && j < n) c[i * n + j] = sum;
}

struct Sgd {
  float lr, momentum, decay;
};

template <int kWidth>
__global__ void sgd(std::int64_t n, Sgd s, const float* g, float* p, float* v) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x * kWidth;
  const auto one = [&s](float gi, float& pi, float& vi) {
    vi = s.momentum * vi + fmaf(s.decay, pi, gi);
    pi -= s.lr * vi;
  };
  for (std::int64_t first = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kWidth;
       first < n; first += step) {
    if (kWidth == 1 || first + kWidth > n) {
      for (std::int64_t i = first; i < n && i < first + kWidth; ++i) one(g[i], p[i], v[i]);
      continue;
    }
    const float4 g4 = *reinterpret_cast<const float4*>(g + first);
    float4 p4 = *reinterpret_cast<float4*>(p + first), v4 = *reinterpret_cast<float4*>(v + first);
    one(g4.x, p4.x, v4.x);
    one(g4.y, p4.y, v4.y);
    one(g4.z, p4.z, v4.z);
    one(g4.w, p4.w, v4.w);
    *reinterpret_cast<float4*>(p + first) = p4;
    *reinterpret_cast<float4*>(v + first) = v4;
  }
}

inline int sgd_width(const float* g, const float* p, const float* v) {
  const auto bits = reinterpret_cast<std::uintptr_t>(g) | reinterpret_cast<std::uintptr_t>(p) |
                    reinterpret_cast<std::uintptr_t>(v);
  return (bits & 15) == 0 ? 4 : 1;
}

}  // namespace lab02
