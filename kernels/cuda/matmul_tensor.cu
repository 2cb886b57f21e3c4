// Matrix product, versions 5 and 6: tensor cores.
//
// A warp multiplies a fragment of A by a fragment of B with a single operation (wmma): 16 x 16
// sums, 2048 (TF32) or 4096 (bfloat16) multiply-adds. Operands are rounded on their way into shared
// memory, to TF32 (8 bits of exponent, 10 of mantissa; k advances by 8) or bfloat16 (8 and 7; by
// 16). Products are exact, sums are floats.
//
//   a block: 128 x 128 of C, 8 warps, each 64 x 32 = 4 x 2 fragments
//   a slab:  16 of k, A and B row by row, 8 elements of padding against bank conflicts
//
// For simplicity, loading a slab does not overlap with multiplying another, as it does in versions
// 8 and 9. Hopper's additional instructions (wgmma, TMA) are left to cuBLASLt.
#include <mma.h>

#include "kernels/cuda/matmul.hpp"
#include "kernels/cuda/tile_product.cuh"
#include "runtime/base/error.hpp"

namespace ringsmith::kernels::cuda {

namespace {

constexpr int kTile = 128;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
struct Tf32 {};
struct Bf16 {};
template <class Type>
__global__ void tensor(Product<float>) {
  __trap();  // the host has checked
}
#else
namespace wmma = nvcuda::wmma;

constexpr int kDepth = 16, kPad = 8, kFragment = 16;
constexpr int kWarpRows = 64, kWarpColumns = 32;
constexpr int kDown = kWarpRows / kFragment, kBeside = kWarpColumns / kFragment;

struct Tf32 {
  using Stored = float;  // in shared memory
  using Fragment = wmma::precision::tf32;
  static constexpr int kStep = 8;  // of k, per instruction
  static __device__ float round(float x) { return wmma::__float_to_tf32(x); }
};
struct Bf16 {
  using Stored = __nv_bfloat16;
  using Fragment = __nv_bfloat16;
  static constexpr int kStep = 16;
  static __device__ __nv_bfloat16 round(float x) { return __float2bfloat16_rn(x); }
};

template <class Type>
__global__ void __launch_bounds__(kThreads) tensor(Product<float> p) {
  using Stored = typename Type::Stored;
  alignas(32) __shared__ Stored slab_a[kTile][kDepth + kPad];
  alignas(32) __shared__ Stored slab_b[kDepth][kTile + kPad];
  alignas(32) __shared__ float out[kThreads / kWarp][kFragment][kFragment];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int warp_row = warp / (kTile / kWarpColumns) * kWarpRows;
  const int warp_column = warp % (kTile / kWarpColumns) * kWarpColumns;
  const std::int64_t row = std::int64_t{blockIdx.y} * kTile;
  const std::int64_t column = std::int64_t{blockIdx.x} * kTile, depth = p.a.cols;
  const bool a_along_k = p.a.col_stride == 1, b_along_k = p.b.row_stride == 1;
  for (std::int64_t batch = blockIdx.z; batch < p.batches; batch += gridDim.z) {
    const float* const a = p.a.data + batch * p.a_batch;
    const float* const b = p.b.data + batch * p.b_batch;
    wmma::fragment<wmma::accumulator, kFragment, kFragment, Type::kStep, float> sums[kDown]
                                                                                    [kBeside];
    for (int i = 0; i < kDown; ++i)
      for (int j = 0; j < kBeside; ++j) wmma::fill_fragment(sums[i][j], 0.0F);
    for (std::int64_t k0 = 0; k0 < depth; k0 += kDepth) {
#pragma unroll
      for (int c = 0; c < kTile * kDepth / kThreads; ++c) {
        const int e = thread + c * kThreads;
        const int i = a_along_k ? e / kDepth : e % kTile, k = a_along_k ? e % kDepth : e / kTile;
        const bool inside = row + i < p.a.rows && k0 + k < depth;
        slab_a[i][k] =
            Type::round(inside ? a[(row + i) * p.a.row_stride + (k0 + k) * p.a.col_stride] : 0.0F);
      }
#pragma unroll
      for (int c = 0; c < kTile * kDepth / kThreads; ++c) {
        const int e = thread + c * kThreads;
        const int j = b_along_k ? e / kDepth : e % kTile, k = b_along_k ? e % kDepth : e / kTile;
        const bool inside = column + j < p.b.cols && k0 + k < depth;
        slab_b[k][j] = Type::round(
            inside ? b[(k0 + k) * p.b.row_stride + (column + j) * p.b.col_stride] : 0.0F);
      }
      __syncthreads();
      for (int k = 0; k < kDepth; k += Type::kStep) {
        wmma::fragment<wmma::matrix_a, kFragment, kFragment, Type::kStep, typename Type::Fragment,
                       wmma::row_major>
            left[kDown];
        wmma::fragment<wmma::matrix_b, kFragment, kFragment, Type::kStep, typename Type::Fragment,
                       wmma::row_major>
            right[kBeside];
        for (int i = 0; i < kDown; ++i)
          wmma::load_matrix_sync(left[i], &slab_a[warp_row + i * kFragment][k], kDepth + kPad);
        for (int j = 0; j < kBeside; ++j)
          wmma::load_matrix_sync(right[j], &slab_b[k][warp_column + j * kFragment], kTile + kPad);
        for (int i = 0; i < kDown; ++i)
          for (int j = 0; j < kBeside; ++j)
            wmma::mma_sync(sums[i][j], left[i], right[j], sums[i][j]);
      }
      __syncthreads();
    }
    // Through shared memory, because the position of an element in a fragment is not documented.
    // The loops are unrolled, because an array that a variable indexes is in local memory, not in
    // registers.
#pragma unroll
    for (int i = 0; i < kDown; ++i)
#pragma unroll
      for (int j = 0; j < kBeside; ++j) {
        wmma::store_matrix_sync(&out[warp][0][0], sums[i][j], kFragment, wmma::mem_row_major);
        __syncwarp();
        for (int e = lane; e < kFragment * kFragment; e += kWarp) {
          const std::int64_t r = row + warp_row + i * kFragment + e / kFragment;
          const std::int64_t c = column + warp_column + j * kFragment + e % kFragment;
          if (r >= p.c.rows || c >= p.c.cols) continue;
          float sum = out[warp][e / kFragment][e % kFragment];
          if (p.bias != nullptr) sum += p.bias[c];
          float& to = p.c.data[batch * p.c_batch + r * p.c.row_stride + c * p.c.col_stride];
          to = p.store == Store::add ? to + sum : sum;
        }
        __syncwarp();
      }
  }
}
#endif

template <class Type>
void run(const Product<float>& p) {
  require_tensor_cores();
  if (p.c.rows * p.c.cols * p.batches == 0) return;
  launch(tensor<Type>, tile_grid(p.c.rows, p.c.cols, kTile, kTile, p.batches), kThreads, 0,
         stream(), p);
}

}  // namespace

void matmul_tensor_tf32(const Product<float>& p) { run<Tf32>(p); }
void matmul_tensor_bf16(const Product<float>& p) { run<Bf16>(p); }

}  // namespace ringsmith::kernels::cuda
