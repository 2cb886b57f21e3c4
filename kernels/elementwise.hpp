// Element-wise operations, forward and backward, for float, double and, on devices, f16 and bf16. A
// 16-bit operand is widened, the operation computed in float, and the result rounded once, as if
// copies in float had been made of the operands.
//
// All operands of a call have the same sizes, and a broadcast operand has stride 0. `out` may be
// the same view as an operand (in place), but must not overlap an operand in any other way.
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
  // Backward: a is the gradient of the result y, and b is y ...
  tanh_backward,     // a (1 - y^2)
  sigmoid_backward,  // a (1 - y) y
  sqrt_backward,     // a / (2 y)
  relu_backward,     // y <= 0 ? 0 : a
  // ... or, for GELU, the input x.
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

inline void look(Operands& o, const Unary& f) { o.function = static_cast<int>(f); }
inline void look(Operands& o, const Binary& f) { o.function = static_cast<int>(f); }
inline void look(Operands& o, const Scalar& f) { o.function = static_cast<int>(f); }

namespace cpu {
using kernels::Binary, kernels::Scalar, kernels::Unary;
}

template <class T>
using UnaryFn = void(Unary op, View<T> out, View<const T> x);
template <class T>
using BinaryFn = void(Binary op, View<T> out, View<const T> a, View<const T> b);
template <class T>
using ScalarFn = void(Scalar op, View<T> out, View<const T> x, Wide<T> s);
RINGSMITH_KERNEL(unary, UnaryFn)
RINGSMITH_KERNEL(binary, BinaryFn)
RINGSMITH_KERNEL(scalar, ScalarFn)

// masked_fill: mask ? value : x
// masked_scale: mask ? x * value : x * 0. As in PyTorch, a dropped infinity becomes NaN.
template <class T>
using MaskedFn = void(View<T> out, View<const T> x, View<const bool> mask, Wide<T> value);
RINGSMITH_KERNEL(masked_fill, MaskedFn)
RINGSMITH_KERNEL(masked_scale, MaskedFn)

// out = a + b with b of type T, f16 or bf16. On devices only.
template <class T>
using AddWidenedFn = void(View<float> out, View<const float> a, View<const T> b);
RINGSMITH_KERNEL(add_widened, AddWidenedFn)

namespace cpu::fast {
template <class T>
UnaryFn<T> unary;
template <class T>
BinaryFn<T> binary;
}  // namespace cpu::fast

}  // namespace ringsmith::kernels
