// Spreads kernels over a device: grid-stride loops, on the calling thread's current stream.
//
// A grid-stride loop lets a grid of any size do all of the work:
//
//   thread t of T processes elements t, t + T, t + 2T ...   neighbours in a warp read neighbours
//
// Therefore the grid can be chosen for the device (a few blocks per multiprocessor), and a small
// emulated device does not have to run a million threads for a million elements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>
#include <utility>

#include "kernels/cuda/launch.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::kernels::cuda {

constexpr int kWarp = 32;
constexpr int kThreads = 256;           // per block, unless there is a reason for another number
constexpr int kBlocksPerProcessor = 8;  // of kThreads: all 2048 threads of a multiprocessor

inline cudaStream_t stream() { return Stream::current().get(); }

inline int processors() {
  int device = 0, count = 1;
  cuda_check(cudaGetDevice(&device));
  cuda_check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

__device__ inline std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

// Number of blocks, at least 1, for a grid-stride loop over `work` items. A block processes
// `per_block` items per iteration.
inline dim3 grid_for(std::int64_t work, std::int64_t per_block = kThreads,
                     std::int64_t blocks_per_processor = kBlocksPerProcessor) {
  const std::int64_t most = processors() * blocks_per_processor;
  return {static_cast<unsigned>(std::clamp<std::int64_t>(ceil_div(work, per_block), 1, most))};
}

// One block per tile of a matrix and per matrix of a batch. If the batch exceeds the limit of a
// grid's z dimension, the kernel must loop over it.
inline dim3 tile_grid(std::int64_t rows, std::int64_t columns, std::int64_t tile_rows,
                      std::int64_t tile_columns, std::int64_t batches) {
  return {static_cast<unsigned>(ceil_div(columns, tile_columns)),
          static_cast<unsigned>(ceil_div(rows, tile_rows)),
          static_cast<unsigned>(std::min<std::int64_t>(batches, 65535))};
}

// This thread's first item, and the distance to its next one.
__device__ inline std::int64_t first_item() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t item_stride() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

template <class... Parameters, class... Arguments>
void launch_over(void (*kernel)(Parameters...), std::int64_t work, std::int64_t per_block,
                 Arguments&&... arguments) {
  launch(kernel, grid_for(work, per_block), kThreads, 0, stream(),
         std::forward<Arguments>(arguments)...);
}

template <class F>
__global__ void for_each_kernel(std::int64_t n, F f) {
  for (std::int64_t i = first_item(); i < n; i += item_stride()) f(i);
}

// Calls f(i) on the device for 0 <= i < n.
template <class F>
void for_each(std::int64_t n, const F& f) {
  if (n > 0) launch_over(for_each_kernel<F>, n, kThreads, n, f);
}

// Always false for types without NaN.
template <class T>
__device__ bool is_nan(const T& x) {
  return x != x;  // NOLINT(misc-redundant-expression)
}

}  // namespace ringsmith::kernels::cuda
