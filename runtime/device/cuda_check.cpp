#include "runtime/device/cuda_check.hpp"

namespace ringsmith::detail {

void throw_cuda_error(cudaError_t code, const std::string& call) {
  std::string message = call + ": " + cudaGetErrorName(code) + ", " + cudaGetErrorString(code);
#ifdef RINGSMITH_VGPU
  if (*vgpu::why() != '\0') message += " (" + std::string(vgpu::why()) + ")";
#endif
  (void)cudaGetLastError();  // reported: the next call starts afresh
  throw CudaError(message);
}

}  // namespace ringsmith::detail
