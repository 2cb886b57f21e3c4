// Unusual and correct: rows are reduced by shuffles within warps and by shared memory between
// them. A block of matmul computes all tiles of one row of tiles. axpy runs backwards. The last
// threads of the grid process sgd's tail.
#pragma once

#include <cmath>
#include <cstdint>
#include <cuda_runtime.h>

#include "labs/kit/cuda.hpp"

namespace lab02 {

__global__ void axpy(std::int64_t n, float a, const float* x, float* y) {
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = n - 1 - (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x); i >= 0;
       i -= threads)
    y[i] = fmaf(a, x[i], y[i]);
}

constexpr int kMostThreads = 256;

struct Pair {
  float best, total;
};
__device__ inline Pair join(Pair p, float best, float total) {
  const bool spoiled = p.best != p.best || best != best;
  return {spoiled ? NAN : fmaxf(p.best, best), p.total + total};
}
__device__ inline Pair over_lanes(Pair p, unsigned lanes) {
  const unsigned mask = lanes == 32 ? 0xFFFFFFFFU : (1U << lanes) - 1;
  for (unsigned far = lanes / 2; far > 0; far /= 2)
    p = join(p, __shfl_xor_sync(mask, p.best, int(far)), __shfl_xor_sync(mask, p.total, int(far)));
  return p;
}

__global__ void row_reduce(std::int64_t rows, std::int64_t cols, kit::Loads<float> x,
                           float* largest, float* sum) {
  __shared__ float best[kMostThreads / 32], total[kMostThreads / 32];
  const unsigned t = threadIdx.x, lane = t % 32, warp = t / 32, warps = (blockDim.x + 31) / 32;
  for (std::int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    Pair p{-INFINITY, 0};
    for (std::int64_t c = t; c < cols; c += blockDim.x)
      p = join(p, x[r * cols + c], x[r * cols + c]);
    p = over_lanes(p, blockDim.x < 32 ? blockDim.x : 32);
    __syncthreads();  // the previous row's results have been read
    if (lane == 0) {
      best[warp] = p.best;
      total[warp] = p.total;
    }
    __syncthreads();
    if (t == 0) {
      for (unsigned w = 1; w < warps; ++w) p = join(p, best[w], total[w]);
      largest[r] = p.best;
      sum[r] = p.total;
    }
  }
}

constexpr int kTile = 16;

// One block per row of tiles.
inline dim3 matmul_grid(std::int64_t m, std::int64_t) { return {1, unsigned((m + 15) / 16)}; }

__global__ void matmul(std::int64_t m, std::int64_t n, std::int64_t k, kit::Loads<float> a,
                       kit::Loads<float> b, float* c) {
  __shared__ float tile[2][kTile * kTile];
  const int x = int(threadIdx.x), y = int(threadIdx.y);
  const std::int64_t i = std::int64_t{blockIdx.y} * kTile + y;
  for (std::int64_t j = x; j - x < n; j += kTile) {
    float sum = 0;
    for (std::int64_t k0 = 0; k0 < k; k0 += kTile) {
      __syncthreads();
      tile[0][y * kTile + x] = i < m && k0 + x < k ? a[i * k + k0 + x] : 0;
      tile[1][y * kTile + x] = k0 + y < k && j < n ? b[(k0 + y) * n + j] : 0;
      __syncthreads();
      for (int e = 0; e < kTile; ++e) sum += tile[0][y * kTile + e] * tile[1][e * kTile + x];
    }
    if (i < m && j < n) c[i * n + j] = sum;
  }
}

struct Sgd {
  float lr, momentum, decay;
};

template <int kWidth>
__global__ void sgd(std::int64_t n, Sgd s, const float* g, float* p, float* v) {
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t me = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const auto one = [&](float gi, float& pi, float& vi) {
    vi = s.momentum * vi + (gi + s.decay * pi);
    pi -= s.lr * vi;
  };
  struct alignas(kWidth * sizeof(float)) Pack {
    float at[kWidth];
  };
  for (std::int64_t i = me; i < n / kWidth; i += threads) {
    Pack gi = reinterpret_cast<const Pack*>(g)[i];
    Pack pi = reinterpret_cast<Pack*>(p)[i], vi = reinterpret_cast<Pack*>(v)[i];
    for (int e = 0; e < kWidth; ++e) one(gi.at[e], pi.at[e], vi.at[e]);
    reinterpret_cast<Pack*>(p)[i] = pi;
    reinterpret_cast<Pack*>(v)[i] = vi;
  }
  for (std::int64_t i = n - 1 - (threads - 1 - me); i >= n / kWidth * kWidth; i -= threads)
    one(g[i], p[i], v[i]);
}

inline int sgd_width(const float* g, const float* p, const float* v) {
  for (const float* q : {g, p, v})
    if (reinterpret_cast<std::uintptr_t>(q) % sizeof(float4) != 0) return 1;
  return 4;
}

}  // namespace lab02
