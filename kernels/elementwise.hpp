// Element-wise operations, forward and backward, for float and double.
//
// Operands of one call have the same sizes; a broadcast operand has stride 0. `out` may be the very
// view of an operand (in place), but must not overlap one in any other way.
#pragma once

#include <cstdint>

#include "kernels/on_device.hpp"
#include "kernels/view.hpp"

namespace ringsmith::kernels {

enum class Unary : std::uint8_t {
  neg,
  exp,
  log,
  sqrt,
  tanh,
  sigmoid,
  relu,
  gelu_erf,   // x Phi(x)
  gelu_tanh,  // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
};

enum class Binary : std::uint8_t {
  add,
  sub,
  mul,
  div,
  // Backward: a is the gradient of the result, b the result y ...
  tanh_backward,     // a (1 - y^2)
  sigmoid_backward,  // a (1 - y) y
  sqrt_backward,     // a / (2 y)
  relu_backward,     // y <= 0 ? 0 : a
  // ... or the input x.
  gelu_erf_backward,
  gelu_tanh_backward,
};

enum class Scalar : std::uint8_t {
  add,           // x + s
  mul,           // x s
  div,           // x / s
  pow,           // x^s
  pow_backward,  // s x^(s-1)
};

namespace cpu {

using kernels::Binary, kernels::Scalar, kernels::Unary;

template <class T>
void unary(Unary op, View<T> out, View<const T> x);
template <class T>
void binary(Binary op, View<T> out, View<const T> a, View<const T> b);
template <class T>
void scalar(Scalar op, View<T> out, View<const T> x, T s);

// mask ? value : x
template <class T>
void masked_fill(View<T> out, View<const T> x, View<const bool> mask, T value);
// mask ? x scale : x 0; a kept infinity stays one, a dropped one becomes NaN, as in PyTorch.
template <class T>
void masked_scale(View<T> out, View<const T> x, View<const bool> mask, T scale);

namespace fast {  // kernels/cpu/fast/elementwise.cpp: the same contracts
template <class T>
void unary(Unary op, View<T> out, View<const T> x);
template <class T>
void binary(Binary op, View<T> out, View<const T> a, View<const T> b);
}  // namespace fast

}  // namespace cpu

// On the current device and stream (runtime/device/stream.hpp): pointers are device memory.
namespace cuda {

template <class T>
void unary(Unary op, View<T> out, View<const T> x);
template <class T>
void binary(Binary op, View<T> out, View<const T> a, View<const T> b);
template <class T>
void scalar(Scalar op, View<T> out, View<const T> x, T s);
template <class T>
void masked_fill(View<T> out, View<const T> x, View<const bool> mask, T value);
template <class T>
void masked_scale(View<T> out, View<const T> x, View<const bool> mask, T scale);

}  // namespace cuda

RINGSMITH_ON_DEVICE(unary)
RINGSMITH_ON_DEVICE(binary)
RINGSMITH_ON_DEVICE(scalar)
RINGSMITH_ON_DEVICE(masked_fill)
RINGSMITH_ON_DEVICE(masked_scale)

}  // namespace ringsmith::kernels
