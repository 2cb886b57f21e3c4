// Gives the mathematical functions of a .cu file another name in the object file, so that kernels
// call the emulator's (libm.cpp) instead of the host's. VGPU_LIBM_ULPS makes them differ from the
// host's, as a device's do.
//
// The compiler must read this file before all others (-include), because it ignores a new name for
// a function that has been used. std::exp(float) and its like are compiler builtins, which keep
// their names: write expf().
#pragma once

#include <math.h>

#include "kernels/vgpu/api/libm_functions.hpp"

#define VGPU_RENAME(NAME)                                   \
  float NAME##f(float) noexcept __asm__("vgpu_" #NAME "f"); \
  double NAME(double) noexcept __asm__("vgpu_" #NAME);
#define VGPU_RENAME_BINARY(NAME)                                   \
  float NAME##f(float, float) noexcept __asm__("vgpu_" #NAME "f"); \
  double NAME(double, double) noexcept __asm__("vgpu_" #NAME);
extern "C" {
VGPU_LIBM_UNARY(VGPU_RENAME)
VGPU_LIBM_BINARY(VGPU_RENAME_BINARY)
}
#undef VGPU_RENAME
#undef VGPU_RENAME_BINARY
