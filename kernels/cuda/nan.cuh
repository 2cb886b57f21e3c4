// NaN is the only value that differs from itself: true of any type that has one, and never of those
// that have none.
#pragma once

#include <cuda_runtime.h>

namespace ringsmith::kernels::cuda {

template <class T>
__device__ bool is_nan(const T& x) {
  return x != x;  // NOLINT(misc-redundant-expression)
}

}  // namespace ringsmith::kernels::cuda
