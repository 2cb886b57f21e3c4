// Additions to the CUDA runtime API that let the same .cu file compile with nvcc and for vgpu.
//
//   __global__ void scale(float* x, float a, int n) { ... }
//   launch(scale, blocks, threads, 0, stream, x, 2, n);  // nvcc: scale<<<...>>>(x, 2, n)
//   cuda_check(cudaMemcpyAsync(...));                 // throws CudaError, naming the call
//   auto* tile = dynamic_shared<float>();             // in a kernel
//
// A loop that waits for another thread must read through cuda::atomic_ref or call __nanosleep() in
// every iteration, because these calls let vgpu run the other threads.
#pragma once

#include <cstddef>
#include <cuda_runtime.h>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/device/cuda_check.hpp"

namespace ringsmith {

// Starts the kernel on the current device, which must be the stream's device. Throws CudaError if
// the configuration is impossible (e.g. an empty grid). Returns immediately; a later call reports
// the errors of the running kernel.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            cudaStream_t stream, Arguments&&... arguments) {
#ifdef RINGSMITH_VGPU
  const cudaError_t code =
      vgpu::launch(vgpu::make_call<Parameters...>(kernel, std::forward<Arguments>(arguments)...),
                   grid, block, shared_bytes, stream);
#else
  std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  const cudaError_t code = std::apply(
      [&](auto&... value) {
        void* pointers[] = {static_cast<void*>(&value)..., nullptr};
        return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, pointers,
                                shared_bytes, stream);
      },
      values);
#endif
  if (code != cudaSuccess) detail::throw_cuda_error(code, "launch");
}

// The block's dynamic shared memory, aligned to 16 bytes.
#ifdef RINGSMITH_VGPU
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(vgpu::current_block->dynamic_shared);
}
#elif defined(__CUDACC__)
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char dynamic_shared_bytes[];
  return reinterpret_cast<T*>(dynamic_shared_bytes);
}
#endif

}  // namespace ringsmith
