// Launches and their sizes in the forms that ringsmith does not use. For C++20, as launch.hpp.
//
// In a cooperative launch all blocks of the grid run together, so that they can meet at
// cooperative_groups::grid_group::sync(). The grid must fit: at most as many blocks as
// cudaOccupancyMaxActiveBlocksPerMultiprocessor returns, on each multiprocessor.
#pragma once

#include <cstddef>
#include <optional>

#include "kernels/vgpu/api/foreign.hpp"
#include "kernels/vgpu/api/launch.hpp"
#include "kernels/vgpu/api/thread.hpp"

namespace vgpu {
// The block waits until all blocks of its grid have arrived, which must be a cooperative launch.
// Called by one thread of each block, which must order memory before and after.
void meet_grid(const Source& where);
bool grid_is_cooperative();

// The kernel with its arguments, if it has been announced; otherwise calls fail().
std::optional<Call> announced_call(const void* kernel, void* const* arguments, const char* caller);
}  // namespace vgpu

cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                                        std::size_t shared_bytes = 0,
                                        cudaStream_t stream = nullptr);
template <class... Parameters>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block,
                                        void** arguments, std::size_t shared_bytes = 0,
                                        cudaStream_t stream = nullptr) {
  return cudaLaunchCooperativeKernel(vgpu::kernel_address(kernel), grid, block, arguments,
                                     shared_bytes, stream);
}

constexpr cudaFuncAttribute cudaFuncAttributePreferredSharedMemoryCarveout =
    static_cast<cudaFuncAttribute>(9);

// ---- nodes of a graph (foreign_graph.hpp) ----

struct cudaKernelNodeParams {
  void* func;
  dim3 gridDim_;  // kernels/vgpu/nvcc appends the _, because gridDim is a macro here
  dim3 blockDim_;
  unsigned sharedMemBytes;
  void** kernelParams;  // read by the call
  void** extra;         // must be null
};
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* after, std::size_t count,
                                   const cudaKernelNodeParams* kernel);
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* kernel);

// ---- occupancy ----

// Returns the block size with the most resident threads, and the grid that fills the device.
// `shared` maps a block size to its dynamic shared memory.
template <class Kernel, class Shared>
cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* grid, int* block, Kernel kernel,
                                                           Shared shared, int limit = 0) {
  int device = 0, multiprocessors = 0, most_threads = 0, best = 0;
  if (const auto e = cudaGetDevice(&device)) return e;
  if (const auto e =
          cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device))
    return e;
  if (const auto e = cudaDeviceGetAttribute(&most_threads, cudaDevAttrMaxThreadsPerBlock, device))
    return e;
  if (limit <= 0 || limit > most_threads) limit = most_threads;
  *grid = *block = 0;
  for (int threads = limit; threads > 0; threads = (threads - 1) / 32 * 32) {
    int blocks = 0;
    if (const auto e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &blocks, kernel, threads, static_cast<std::size_t>(shared(threads))))
      return e;
    if (blocks * threads <= best) continue;
    best = blocks * threads;
    *block = threads;
    *grid = blocks * multiprocessors;
  }
  return cudaSuccess;
}
template <class Kernel>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, Kernel kernel,
                                               std::size_t shared_bytes = 0, int limit = 0) {
  return cudaOccupancyMaxPotentialBlockSizeVariableSMem(
      grid, block, kernel, [=](int) { return shared_bytes; }, limit);
}
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, Kernel kernel,
                                                                   int threads,
                                                                   std::size_t shared_bytes,
                                                                   unsigned /*flags*/) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, shared_bytes);
}
