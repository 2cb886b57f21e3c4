// <cuda_profiler_api.h> of the emulator: there is no profiler to start or stop.
#pragma once

#include "kernels/vgpu/api/runtime.hpp"

static inline cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
static inline cudaError_t cudaProfilerStop(void) { return cudaSuccess; }
