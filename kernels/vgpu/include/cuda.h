// <cuda.h> of the emulator, with the only call of the driver API that IPC needs.
#pragma once

#include <cstddef>

enum CUresult : int { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 };
using CUdeviceptr = unsigned long long;

// Base and size of the block of memory that an IPC handle for this pointer would name.
CUresult cuMemGetAddressRange(CUdeviceptr* base, std::size_t* size, CUdeviceptr pointer);
