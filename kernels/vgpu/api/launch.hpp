// cudaLaunchKernel for a function whose parameter types are known. Use ringsmith::launch
// (kernels/cuda/launch.hpp), which also works under nvcc.
//
// The rest is for sources written for nvcc alone, which kernels/vgpu/nvcc translates:
//
//     scale<<<blocks, threads, 0, stream>>>(x, n);          vgpu::Configured(blocks, ...).run(...)
//     f = (const void*)&scale<float>; cudaLaunchKernel(f, ..., pointers to arguments, ...)
//
// nvcc knows a kernel's parameters from its address. Here vgpu::kernel_address() must announce an
// address and its parameter types before the kernel is launched.
#pragma once

#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/vgpu/api/language.hpp"
#include "kernels/vgpu/api/runtime.hpp"

namespace vgpu {

// A kernel with its arguments: the work of one thread of the grid.
struct Call {
  void (*run)(const void* arguments);
  std::shared_ptr<const void> arguments;
  const void* function;        // to look up the name for reports
  const char* name = nullptr;  // the name, if it is known
};

// Declares to ThreadSanitizer (order.hpp) that the kernel's threads ended before its arguments are
// destroyed. Called by the arguments' deleter.
void outlived(const void* arguments);

template <class Bound>
std::shared_ptr<const void> shared_arguments(Bound bound) {
  return {static_cast<const void*>(new Bound(std::move(bound))), [](const void* p) {
            outlived(p);
            delete static_cast<const Bound*>(p);
          }};
}

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
          shared_arguments(Bound{kernel, {arguments...}}), reinterpret_cast<const void*>(kernel)};
}

using MakeCall = Call (*)(const void* kernel, void* const* arguments);
// Stores `make` for the kernel and returns the kernel's address.
const void* announce_kernel(const void* kernel, MakeCall make);

template <class... Parameters, std::size_t... i>
Call unpacked_call(void (*kernel)(Parameters...), [[maybe_unused]] void* const* arguments,
                   std::index_sequence<i...> /*of Parameters*/) {
  return make_call<Parameters...>(
      kernel, *static_cast<const std::remove_cv_t<Parameters>*>(arguments[i])...);
}
template <class... Parameters>
const void* kernel_address(void (*kernel)(Parameters...)) {
  return announce_kernel(
      reinterpret_cast<const void*>(kernel), [](const void* address, void* const* arguments) {
        return unpacked_call(reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(address)),
                             arguments, std::index_sequence_for<Parameters...>{});
      });
}

class Configured {
 public:
  Configured(dim3 grid, dim3 block, std::size_t shared_bytes = 0, cudaStream_t stream = nullptr)
      : grid_(grid), block_(block), shared_bytes_(shared_bytes), stream_(stream) {}
  // Every thread calls call(arguments...). As with nvcc, only cudaGetLastError() reports errors.
  template <class Function, class... Arguments>
  void run(const char* name, Function call, Arguments&&... arguments) const {
    struct Bound {
      Function call;
      std::tuple<std::decay_t<Arguments>...> arguments;
    };
    (void)launch({[](const void* p) {
                    const auto* bound = static_cast<const Bound*>(p);
                    std::apply(bound->call, bound->arguments);
                  },
                  shared_arguments(Bound{std::move(call), {std::forward<Arguments>(arguments)...}}),
                  nullptr, name},
                 grid_, block_, shared_bytes_, stream_);
  }

 private:
  dim3 grid_, block_;
  std::size_t shared_bytes_;
  cudaStream_t stream_;
};

}  // namespace vgpu

// arguments: a pointer to each argument. Returns cudaErrorInvalidDeviceFunction if kernel_address()
// has not announced the kernel.
cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                             std::size_t shared_bytes, cudaStream_t stream);
template <class... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                             std::size_t shared_bytes = 0, cudaStream_t stream = nullptr) {
  return cudaLaunchKernel(vgpu::kernel_address(kernel), grid, block, arguments, shared_bytes,
                          stream);
}

// A block has at most 48 KiB of dynamic shared memory, or up to 227 KiB if the kernel requests it.
enum cudaFuncAttribute : int { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute,
                                 int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

// What the compiler made of a kernel. There are no registers here, so numRegs is 0; the number of
// threads and the dynamic shared memory are the launch's limits. As with CUDA, the call loads the
// kernel.
struct cudaFuncAttributes {
  std::size_t sharedSizeBytes;
  std::size_t constSizeBytes;
  std::size_t localSizeBytes;
  int maxThreadsPerBlock;
  int numRegs;
  int ptxVersion;
  int binaryVersion;
  int maxDynamicSharedSizeBytes;
};
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel);
template <class... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Parameters...)) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}

// How many blocks of a kernel one multiprocessor holds simultaneously: VGPU_RESIDENT if it is set,
// else as many as the threads of a multiprocessor allow.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel,
                                                          int threads, std::size_t shared_bytes);
template <class... Parameters>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                          void (*kernel)(Parameters...),
                                                          int threads, std::size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, reinterpret_cast<const void*>(kernel), threads, shared_bytes);
}
