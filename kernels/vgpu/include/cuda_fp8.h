// <cuda_fp8.h> of the emulator, which has no 8-bit types. It is empty, for programs that include it
// before they check whether __CUDA_FP8_TYPES_EXIST__ is defined.
#pragma once

#if defined(__cplusplus) && __cplusplus >= 202002L  // kernels need C++20
#endif
