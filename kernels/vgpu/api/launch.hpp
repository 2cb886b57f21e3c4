// Starting a kernel: cudaLaunchKernel with a caller for its parameter types. Use ringsmith::launch
// (kernels/cuda/launch.hpp), which also works under nvcc.
#pragma once

#include <cstddef>
#include <memory>
#include <tuple>

#include "kernels/vgpu/api/language.hpp"
#include "kernels/vgpu/api/runtime.hpp"

namespace vgpu {

// A kernel with its arguments: what one thread of the grid executes.
struct Call {
  void (*run)(const void* arguments);
  std::shared_ptr<const void> arguments;
  const void* function;  // for the name in reports
};

cudaError_t launch(const Call& call, dim3 grid, dim3 block, std::size_t shared_bytes,
                   cudaStream_t stream);

template <class... Parameters>
Call make_call(void (*kernel)(Parameters...), Parameters... arguments) {
  struct Bound {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
  };
  return {[](const void* p) {
            const auto* bound = static_cast<const Bound*>(p);
            std::apply(bound->kernel, bound->arguments);
          },
          std::make_shared<const Bound>(Bound{kernel, {arguments...}}),
          reinterpret_cast<const void*>(kernel)};
}

}  // namespace vgpu

// Shared memory per block is 48 KiB unless a kernel asks for more.
enum cudaFuncAttribute : int { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute,
                                 int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
