// Turns CUDA error codes into exceptions.
//
//   cuda_check(cudaMemcpyAsync(...));    // throws CudaError with the call, file:line, CUDA's text
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
  (void)cudaGetLastError();  // clears the error, so that no later call reports it again
  throw CudaError(message);
}

inline void check_cuda(cudaError_t code, const char* call, const char* file, int line) {
  if (code != cudaSuccess)
    throw_cuda_error(code, std::string(file) + ":" + std::to_string(line) + ": " + call);
}

}  // namespace ringsmith::detail

// cuda_check is a macro, so that it can turn the call into text.
#define cuda_check(...) \
  ::ringsmith::detail::check_cuda((__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)
