// The part of the CUDA runtime API that ringsmith uses, on the CPU. A call that is not declared
// here does not compile.
#pragma once

#include "kernels/vgpu/api/atomics.hpp"
#include "kernels/vgpu/api/graph.hpp"
#include "kernels/vgpu/api/language.hpp"
#include "kernels/vgpu/api/launch.hpp"
#include "kernels/vgpu/api/runtime.hpp"
#include "kernels/vgpu/api/thread.hpp"
