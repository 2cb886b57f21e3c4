// Memory and events between processes.
//
// The traps of the real thing are kept. A handle names the whole block of memory that the
// allocation lies in (small allocations share one): ship the pointer's offset from the block's
// base, which cuMemGetAddressRange tells (cuda.h), and add it to what cudaIpcOpenMemHandle returns.
// A process cannot open its own handles. Opening a handle twice gives the same pointer, to be
// closed twice.
#pragma once

#include "kernels/vgpu/api/error.hpp"
#include "kernels/vgpu/api/stream.hpp"

#define CUDA_IPC_HANDLE_SIZE 64
#define cudaIpcMemLazyEnablePeerAccess 0x01

struct cudaIpcMemHandle_t {
  char reserved[CUDA_IPC_HANDLE_SIZE];
};
struct cudaIpcEventHandle_t {
  char reserved[CUDA_IPC_HANDLE_SIZE];
};

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer);
// Maps the block for the current device.
cudaError_t cudaIpcOpenMemHandle(void** base, cudaIpcMemHandle_t handle, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void* base);

// The event must have been made with cudaEventInterprocess | cudaEventDisableTiming.
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event);
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle);
