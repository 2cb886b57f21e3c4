// <cuda_runtime.h> of the emulator: the part of the CUDA runtime API that ringsmith uses, on the
// CPU. A call that is not declared here does not compile: better than one that is wrong.
#pragma once

#include "kernels/vgpu/api/atomics.hpp"
#include "kernels/vgpu/api/device_query.hpp"
#include "kernels/vgpu/api/error.hpp"
#include "kernels/vgpu/api/ipc.hpp"
#include "kernels/vgpu/api/keywords.hpp"
#include "kernels/vgpu/api/launch.hpp"
#include "kernels/vgpu/api/math.hpp"
#include "kernels/vgpu/api/memory.hpp"
#include "kernels/vgpu/api/stream.hpp"
#include "kernels/vgpu/api/thread.hpp"
#include "kernels/vgpu/api/vector_types.hpp"
#include "kernels/vgpu/api/warp.hpp"
