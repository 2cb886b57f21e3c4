// CUDA's keywords, as the host compiler sees them.
//
// A kernel is an ordinary function. One OS thread runs one block at a time, and a block stays on
// its thread until it ends, so that a thread_local variable is exactly a variable of the block.
#pragma once

#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __grid_constant__
#define CUDART_VERSION 12000
