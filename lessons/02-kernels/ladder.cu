// Lesson 02: the first two rungs of the ladder of matrix products, with every load from memory
// counted. The counts are the same on every machine; time is not measured.
#include <cstdio>
#include <vector>

#include "kernels/cuda/launch.hpp"

using namespace ringsmith;

namespace {

constexpr int kTile = 16;

// An n x n matrix, stored row by row, that counts its loads.
struct Matrix {
  const float* at;
  int n;
  unsigned long long* loads;
  __device__ float operator()(int i, int j) const {
    atomicAdd(loads, 1ULL);
    return at[i * n + j];
  }
};

__global__ void naive(Matrix a, Matrix b, float* c) {
  const int j = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int i = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (i >= a.n || j >= a.n) return;
  float sum = 0;
  for (int k = 0; k < a.n; ++k) sum += a(i, k) * b(k, j);
  c[i * a.n + j] = sum;
}

__global__ void tiled(Matrix a, Matrix b, float* c) {
  __shared__ float tile_a[kTile][kTile], tile_b[kTile][kTile];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y), n = a.n;
  const int i = static_cast<int>(blockIdx.y) * kTile + y,
            j = static_cast<int>(blockIdx.x) * kTile + x;
  float sum = 0;
  for (int k0 = 0; k0 < n; k0 += kTile) {
    tile_a[y][x] = i < n && k0 + x < n ? a(i, k0 + x) : 0;
    tile_b[y][x] = k0 + y < n && j < n ? b(k0 + y, j) : 0;
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += tile_a[y][k] * tile_b[k][x];
    __syncthreads();
  }
  if (i < n && j < n) c[i * n + j] = sum;
}

struct Outcome {
  unsigned long long loads = 0;
  std::vector<float> c;
};

Outcome run(void (*kernel)(Matrix, Matrix, float*), int n, cudaStream_t stream) {
  const auto bytes = static_cast<std::size_t>(n * n) * sizeof(float);
  float *ab = nullptr, *c = nullptr;
  unsigned long long* loads = nullptr;
  cuda_check(cudaMalloc(&ab, bytes));
  cuda_check(cudaMalloc(&c, bytes));
  cuda_check(cudaMalloc(&loads, sizeof *loads));
  Outcome out{0, std::vector<float>(static_cast<std::size_t>(n * n))};
  for (int i = 0; i < n * n; ++i)
    out.c[static_cast<std::size_t>(i)] = static_cast<float>(i % 7 - 3);
  cuda_check(cudaMemcpyAsync(ab, out.c.data(), bytes, cudaMemcpyHostToDevice, stream));
  cuda_check(cudaMemsetAsync(loads, 0, sizeof *loads, stream));
  const unsigned tiles = static_cast<unsigned>((n + kTile - 1) / kTile);
  launch(kernel, dim3(tiles, tiles), dim3(kTile, kTile), 0, stream, Matrix{ab, n, loads},
         Matrix{ab, n, loads}, c);
  cuda_check(cudaMemcpyAsync(out.c.data(), c, bytes, cudaMemcpyDeviceToHost, stream));
  cuda_check(cudaMemcpyAsync(&out.loads, loads, sizeof *loads, cudaMemcpyDeviceToHost, stream));
  cuda_check(cudaStreamSynchronize(stream));
  cuda_check(cudaFree(ab));
  cuda_check(cudaFree(c));
  cuda_check(cudaFree(loads));
  return out;
}

}  // namespace

int main() {
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::printf("loads from memory for a product of n x n matrices, tiles of %d x %d\n", kTile,
              kTile);
  std::printf("    n      naive     tiled   naive/tiled  results\n");
  for (const int n : {16, 33, 48, 96}) {
    const Outcome slow = run(naive, n, stream), fast = run(tiled, n, stream);
    std::printf("  %3d  %9llu  %8llu  %11.2f  %s\n", n, slow.loads, fast.loads,
                static_cast<double>(slow.loads) / static_cast<double>(fast.loads),
                slow.c == fast.c ? "equal" : "DIFFERENT");
  }
  return 0;
}
