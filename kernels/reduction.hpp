// Sums and maxima over any dimensions of a strided tensor, for float and double.
//
// A result has the sizes of the input. Its stride is 0 in each reduced dimension and must be
// nonzero in all others.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/on_device.hpp"
#include "kernels/view.hpp"

namespace ringsmith::kernels {

// The reduced dimension: x[..., k] for k < n is k * stride elements after the element of x's view.
struct Reduced {
  std::int64_t n = 1;
  std::int64_t stride = 1;
};
inline void look(Operands& o, const Reduced& dim) { o.inner = static_cast<double>(dim.n); }

namespace cpu {
using kernels::Reduced;
}

// out = the sum of x over the dimensions in which out has stride 0 (0 if there is nothing to add).
// Devices also sum f16 and bf16, in float, and round each sum once.
//
// The oracle adds in PyTorch's order (cpu/cascade.hpp). If the reduced elements are one run in
// memory, it uses contiguous_sum for a contiguous run, column_sums for columns of a matrix, and
// row_sum otherwise. If there are several runs, it sums each of them in this way and adds the
// results in memory order.
template <class T>
using SumFn = void(View<T> out, View<const T> x);
RINGSMITH_KERNEL(sum, SumFn)

// Each of `values` is the largest of n elements, and the entry of `indices` is the position of the
// first such element. NaN is larger than any number. All three views have the same sizes (without
// the reduced dimension), and n must be positive.
template <class T>
using MaxFn = void(View<T> values, View<std::int64_t> indices, View<const T> x, Reduced dim);
RINGSMITH_KERNEL(max, MaxFn)

// grad_x[..., indices] = g and 0 elsewhere.
template <class T>
using MaxBackwardFn = void(View<T> grad_x, View<const std::int64_t> indices, View<const T> g,
                           Reduced dim);
RINGSMITH_KERNEL(max_backward, MaxBackwardFn)

// grad_x = g[0] / count where x equals maximum[0] (or both are NaN), for `count` elements; else 0.
template <class T>
using MaxAllBackwardFn = void(std::span<T> grad_x, std::span<const T> x, std::span<const T> maximum,
                              std::span<const T> g);
RINGSMITH_KERNEL(max_all_backward, MaxAllBackwardFn)

namespace cpu::fast {
template <class T>
SumFn<T> sum;
}  // namespace cpu::fast

}  // namespace ringsmith::kernels
