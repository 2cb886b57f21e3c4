// Turns CUDA error codes into exceptions. For .cpp and .cu files; headers do not include it.
//
//   cuda_check(cudaMemcpyAsync(...));    // throws CudaError: the call, file:line, CUDA's message
#pragma once

#include <cuda_runtime.h>
#include <string>

#include "runtime/base/error.hpp"

namespace ringsmith::detail {

[[noreturn]] inline void throw_cuda_error(cudaError_t code, const std::string& call) {
  std::string message = call + ": " + cudaGetErrorName(code) + ", " + cudaGetErrorString(code);
#ifdef RINGSMITH_VGPU
  if (*vgpu::why() != '\0') message += " (" + std::string(vgpu::why()) + ")";
#endif
  (void)cudaGetLastError();  // reported here: must not affect the next call
  throw CudaError(message);
}

inline void check_cuda(cudaError_t code, const char* call, const char* file, int line) {
  if (code != cudaSuccess)
    throw_cuda_error(code, std::string(file) + ":" + std::to_string(line) + ": " + call);
}

}  // namespace ringsmith::detail

// A macro, because only a macro can name the call.
#define cuda_check(...) \
  ::ringsmith::detail::check_cuda((__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)
