#include "runtime/device/cuda_check.hpp"

#include <string>

namespace ringsmith {

void check_cuda(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  (void)cudaGetLastError();  // an error that does not stick must not be reported a second time
  throw CudaError(std::string(what) + " failed: " + cudaGetErrorString(code));
}

}  // namespace ringsmith
