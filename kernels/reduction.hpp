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

namespace cpu {

using kernels::Reduced;

// out = the sum of x over out's dimensions of stride 0 (0 if there is nothing to add).
//
// Order, if what is reduced lies in memory as one run: PyTorch's, see cpu/cascade.hpp (contiguous
// run: contiguous_sum; columns of a matrix: column_sums; else row_sum). If it does not, the runs
// are summed so one by one, and the results added in order of memory.
template <class T>
void sum(View<T> out, View<const T> x);

// values = the largest of the n elements, indices = where the first of them is. NaN is larger than
// anything. All three views have the same sizes (without the reduced dimension); n > 0.
template <class T>
void max(View<T> values, View<std::int64_t> indices, View<const T> x, Reduced dim);

// grad_x[..., indices] = g and 0 elsewhere.
template <class T>
void max_backward(View<T> grad_x, View<const std::int64_t> indices, View<const T> g, Reduced dim);

// grad_x = g[0] / count where x equals maximum[0] (or both are NaN), 0 elsewhere.
template <class T>
void max_all_backward(std::span<T> grad_x, std::span<const T> x, std::span<const T> maximum,
                      std::span<const T> g);

namespace fast {  // kernels/cpu/fast/reduction.cpp: the same contract
template <class T>
void sum(View<T> out, View<const T> x);
}  // namespace fast

}  // namespace cpu

// On the current device and stream (runtime/device/stream.hpp): pointers are device memory.
namespace cuda {

template <class T>
void sum(View<T> out, View<const T> x);
template <class T>
void max(View<T> values, View<std::int64_t> indices, View<const T> x, Reduced dim);
template <class T>
void max_backward(View<T> grad_x, View<const std::int64_t> indices, View<const T> g, Reduced dim);
template <class T>
void max_all_backward(std::span<T> grad_x, std::span<const T> x, std::span<const T> maximum,
                      std::span<const T> g);

}  // namespace cuda

RINGSMITH_ON_DEVICE(sum)
RINGSMITH_ON_DEVICE(max)
RINGSMITH_ON_DEVICE(max_backward)
RINGSMITH_ON_DEVICE(max_all_backward)

}  // namespace ringsmith::kernels
