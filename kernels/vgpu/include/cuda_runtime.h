// The part of the CUDA runtime API that ringsmith uses, on the CPU. A call that is not declared
// here does not compile. Kernels need C++20; a program in C or older C++ gets the runtime's calls,
// as with CUDA's header and a host compiler.
#pragma once

#include "kernels/vgpu/api/runtime.hpp"

#if defined(__cplusplus) && __cplusplus >= 202002L
#include "kernels/vgpu/api/atomics.hpp"
#include "kernels/vgpu/api/graph.hpp"
#include "kernels/vgpu/api/language.hpp"
#include "kernels/vgpu/api/launch.hpp"
#include "kernels/vgpu/api/thread.hpp"
#elif defined(__cplusplus)
#include "kernels/vgpu/api/graph.hpp"
#endif
