// Matrix product, version 2: tiles through shared memory.
//
//   a block of 32 x 32 threads computes a 32 x 32 tile of C:
//     for each 32 of k:  load a tile of A and a tile of B, one element per thread
//                        __syncthreads
//                        every thread: 32 multiply-adds, operands from shared memory
//                        __syncthreads        (the next tiles overwrite these)
//
// Each loaded element is used by 32 threads, so memory traffic falls by a factor of 32. The limit
// is now shared memory, with two loads for each multiply-add.
#include "kernels/cuda/matmul.hpp"
#include "kernels/cuda/tile_product.cuh"

namespace ringsmith::kernels::cuda {

namespace {

constexpr int kTile = 32;

__global__ void tiled(Product<float> p) {
  __shared__ float tile_a[kTile][kTile + 1], tile_b[kTile][kTile + 1];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const std::int64_t i = std::int64_t{blockIdx.y} * kTile + y;
  const std::int64_t j = std::int64_t{blockIdx.x} * kTile + x;
  for (std::int64_t batch = blockIdx.z; batch < p.batches; batch += gridDim.z) {
    const float* const a = p.a.data + batch * p.a_batch;
    const float* const b = p.b.data + batch * p.b_batch;
    float sum = 0;
    for (std::int64_t k0 = 0; k0 < p.a.cols; k0 += kTile) {
      const bool in_a = i < p.a.rows && k0 + x < p.a.cols, in_b = k0 + y < p.b.rows && j < p.b.cols;
      tile_a[y][x] = in_a ? a[i * p.a.row_stride + (k0 + x) * p.a.col_stride] : 0;
      tile_b[y][x] = in_b ? b[(k0 + y) * p.b.row_stride + j * p.b.col_stride] : 0;
      __syncthreads();
      for (int k = 0; k < kTile; ++k) sum = multiply_add(tile_a[y][k], tile_b[k][x], sum);
      __syncthreads();
    }
    if (i >= p.c.rows || j >= p.c.cols) continue;
    if (p.bias != nullptr) sum += p.bias[j];
    float& c = p.c.data[batch * p.c_batch + i * p.c.row_stride + j * p.c.col_stride];
    c = p.store == Store::add ? c + sum : sum;
  }
}

}  // namespace

void matmul_tiled(const Product<float>& p) {
  if (p.c.rows * p.c.cols * p.batches == 0) return;
  launch(tiled, tile_grid(p.c.rows, p.c.cols, kTile, kTile, p.batches), dim3(kTile, kTile), 0,
         stream(), p);
}

}  // namespace ringsmith::kernels::cuda
