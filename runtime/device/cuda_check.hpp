// Error codes of the CUDA runtime as exceptions. For .cpp files of this room and for kernels/cuda;
// headers do not include it.
#pragma once

#include <cuda_runtime.h>

#include "runtime/device/cuda_error.hpp"

namespace ringsmith {

// Throws CudaError "<what> failed: <CUDA's words>" unless code is cudaSuccess; what names the call.
void check_cuda(cudaError_t code, const char* what);

}  // namespace ringsmith
