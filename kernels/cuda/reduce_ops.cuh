// The pairwise operations of kernels/reduce.hpp on a device, with the bits of
// kernels/cpu/reduce_ops.hpp. (A NaN stays a NaN, but its payload depends on the processor.) Used
// by the reduction kernel and the kernels of runtime/comm/device.
//
// Sums and products use rounding intrinsics, because the compiler could contract an operator with
// its neighbour into a fused multiply-add, which rounds once where the CPU rounds twice.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <type_traits>

#include "kernels/reduce.hpp"

namespace ringsmith::kernels::cuda {

// The type in which one pairwise operation is computed.
template <class T>
struct Computed {
  using type = T;
  static __device__ T widen(T x) { return x; }
  static __device__ T narrow(T x) { return x; }
};
template <>
struct Computed<f16> {
  using type = float;
  static __device__ float widen(f16 x) { return __half2float(__ushort_as_half(x.bits)); }
  static __device__ f16 narrow(float x) {
    f16 y;
    y.bits = __half_as_ushort(__float2half_rn(x));
    return y;
  }
};
template <>
struct Computed<bf16> {
  using type = float;
  static __device__ float widen(bf16 x) { return __bfloat162float(__ushort_as_bfloat16(x.bits)); }
  static __device__ bf16 narrow(float x) {
    bf16 y;
    y.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
    return y;
  }
};

__device__ inline float rounded_sum(float a, float b) { return __fadd_rn(a, b); }
__device__ inline double rounded_sum(double a, double b) { return __dadd_rn(a, b); }
__device__ inline float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double rounded_product(double a, double b) { return __dmul_rn(a, b); }

// True if the first operand is the result, because it wins or is NaN.
template <class C>
__device__ bool keeps_first(C a, bool first_wins) {
  return first_wins || a != a;
}

// Integer sums and products are unsigned, so overflow wraps.
template <Reduction op, class C>
__device__ C combine_computed(C a, C b) {
  if constexpr (op == Reduction::min) {
    return keeps_first(a, a < b) ? a : b;
  } else if constexpr (op == Reduction::max) {
    return keeps_first(a, a > b) ? a : b;
  } else if constexpr (std::is_integral_v<C>) {
    using U = std::common_type_t<std::make_unsigned_t<C>, unsigned>;
    const U x = static_cast<U>(a), y = static_cast<U>(b);
    return static_cast<C>(op == Reduction::sum ? x + y : x * y);
  } else if constexpr (op == Reduction::sum) {
    return rounded_sum(a, b);
  } else {
    return rounded_product(a, b);
  }
}

template <Reduction op, class T>
__device__ T combine(T a, T b) {
  using C = Computed<T>;
  return C::narrow(combine_computed<op>(C::widen(a), C::widen(b)));
}

// Computed in Computed<T>::type, then rounded to T. Integers are returned unchanged.
template <class T>
__device__ T scaled(T x, double scale) {
  using C = Computed<T>;
  if constexpr (std::is_integral_v<T>)
    return x;
  else
    return C::narrow(rounded_product(C::widen(x), static_cast<typename C::type>(scale)));
}

template <class F>
__host__ __device__ auto visit_reduction(Reduction op, F&& f) {
  switch (op) {
    case Reduction::sum:
      return f(std::integral_constant<Reduction, Reduction::sum>{});
    case Reduction::prod:
      return f(std::integral_constant<Reduction, Reduction::prod>{});
    case Reduction::min:
      return f(std::integral_constant<Reduction, Reduction::min>{});
    default:
      return f(std::integral_constant<Reduction, Reduction::max>{});
  }
}

}  // namespace ringsmith::kernels::cuda
