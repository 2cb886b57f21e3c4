// <cuda.h> of the emulator, with the only call of the driver API that IPC needs.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 } CUresult;
typedef unsigned long long CUdeviceptr;

// Base and size of the block of memory that an IPC handle for this pointer would name.
CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* size, CUdeviceptr pointer);

#ifdef __cplusplus
}
#endif
