// <cuda_fp8.h> of the emulator, which has no 8-bit types: it is there for programs that include it
// before they ask whether __CUDA_FP8_TYPES_EXIST__ is defined. It is not.
#pragma once
