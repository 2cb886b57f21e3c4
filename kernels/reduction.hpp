// Sums and maxima over any dimensions of a strided tensor, for float and double.
//
// A result is given with the sizes of the input: a dimension that is reduced has stride 0 in it,
// the others must not have.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/on_device.hpp"
#include "kernels/view.hpp"

namespace ringsmith::kernels {

// One dimension: x[..., k] for k < n lies k * stride behind the element of x's view.
struct Reduced {
  std::int64_t n = 1;
  std::int64_t stride = 1;
};
inline void look(Operands& o, const Reduced& dim) { o.inner = static_cast<double>(dim.n); }

namespace cpu {
using kernels::Reduced;
}

// out = the sum of x over out's dimensions of stride 0 (0 if there is nothing to add).
//
// The oracle's order, if what is reduced lies in memory as one run: PyTorch's, see cpu/cascade.hpp
// (contiguous run: contiguous_sum; columns of a matrix: column_sums; else row_sum). If it does not,
// the runs are summed so one by one, and the results added in order of memory.
template <class T>
using SumFn = void(View<T> out, View<const T> x);
RINGSMITH_KERNEL(sum, SumFn)

// values = the largest of the n elements, indices = where the first of them is. NaN is larger than
// anything. All three views have the same sizes (without the reduced dimension); n > 0.
template <class T>
using MaxFn = void(View<T> values, View<std::int64_t> indices, View<const T> x, Reduced dim);
RINGSMITH_KERNEL(max, MaxFn)

// grad_x[..., indices] = g and 0 elsewhere.
template <class T>
using MaxBackwardFn = void(View<T> grad_x, View<const std::int64_t> indices, View<const T> g,
                           Reduced dim);
RINGSMITH_KERNEL(max_backward, MaxBackwardFn)

// grad_x = g[0] / count where x equals maximum[0] (or both are NaN), 0 elsewhere.
template <class T>
using MaxAllBackwardFn = void(std::span<T> grad_x, std::span<const T> x, std::span<const T> maximum,
                              std::span<const T> g);
RINGSMITH_KERNEL(max_all_backward, MaxAllBackwardFn)

namespace cpu::fast {
template <class T>
SumFn<T> sum;
}  // namespace cpu::fast

}  // namespace ringsmith::kernels
