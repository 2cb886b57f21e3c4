// <cuda_runtime.h> of the emulator: the part of the CUDA runtime API that ringsmith uses, on the
// CPU. A call that is not declared here does not compile, which is better than a wrong call.
#pragma once

#include "kernels/vgpu/api/atomics.hpp"
#include "kernels/vgpu/api/graph.hpp"
#include "kernels/vgpu/api/language.hpp"
#include "kernels/vgpu/api/launch.hpp"
#include "kernels/vgpu/api/runtime.hpp"
#include "kernels/vgpu/api/thread.hpp"
