// <cuda_runtime.h> of the toolkit that programs written for nvcc see (make nccl): the emulator's
// header, and the calls that ringsmith itself does not use.
#pragma once

#ifndef VGPU_SHARED
#define VGPU_SHARED  // the toolkit's emulator is a shared library
#endif
#include "kernels/vgpu/api/foreign.hpp"
#include "kernels/vgpu/include/cuda_runtime.h"

#ifdef __cplusplus
#define cudaDeviceProp vgpuDeviceProp  // with all properties: api/foreign_properties.hpp
#endif
#if defined(__cplusplus) && __cplusplus >= 202002L  // kernels need C++20
#include "kernels/vgpu/api/foreign_device.hpp"
#include "kernels/vgpu/api/foreign_launch.hpp"
#ifdef VGPU_BEFORE_CXX20  // the program's own standard
#define lerp vgpu_lerp    // samples define one, as <cmath> of C++20 does
#endif
#ifndef __CUDACC__
#define rsqrtf vgpu_rsqrtf_of_host  // host files have none from CUDA, so samples define it
#endif
#endif
