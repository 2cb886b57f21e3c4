// A program without device support links this file instead of kernels/cuda, runtime/comm/device and
// a CUDA runtime.
//
//   runtime/device, comm, tensor, ...  --calls-->  kernels/cuda, comm/device, runtime   make build
//                                      --calls-->  this file                            make train
//
// Compiling the kernels for devices and the emulator would double the time until a user without a
// GPU sees the first loss. require_device() refuses every device, because the count below is 0, so
// nothing else in this file is ever called. Every other device symbol that the libraries call is an
// alias of ringsmith_no_devices(). symbols.sh extracts these symbols from the libraries.
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
