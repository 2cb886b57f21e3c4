// A program without device support links this file instead of kernels/cuda, runtime/comm/device and
// a CUDA runtime.
//
//   runtime/device, comm, tensor, ...  --calls-->  kernels/cuda, comm/device, runtime   make build
//                                      --calls-->  this file                            make train
//
// Not compiling the kernels for devices and the emulator halves the time until a user without a GPU
// sees the first loss. The device count below is 0, so require_device() refuses every device, and
// no kernel is ever called. symbols.sh makes every device symbol that the libraries need and this
// file does not define an alias of a function that calls ringsmith_no_devices().
#include <cuda_runtime.h>

#include "runtime/base/error.hpp"

namespace {
constexpr const char* kWhy = "this program was built without devices (make build compiles them)";
}

extern "C" void ringsmith_no_devices() { throw ringsmith::UsageError(kWhy); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return cudaErrorNotSupported;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t /*code*/) { return "cudaErrorNotSupported"; }
const char* cudaGetErrorString(cudaError_t /*code*/) { return kWhy; }

namespace vgpu {
const char* why() { return ""; }
}  // namespace vgpu
