// Kernels on tensors, without a graph: allocate the result, broadcast the operands, call the
// kernel. What the differentiable functions (runtime/autograd/functions) are made of. f32 and f64
// unless said otherwise, else UsageError naming the function.
#pragma once

#include <vector>

#include "kernels/elementwise.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith::raw {

using kernels::cpu::Binary;
using kernels::cpu::Scalar;
using kernels::cpu::Unary;

// The shape that a and b broadcast to; UsageError naming both if there is none.
[[nodiscard]] Shape broadcast_shape(const char* what, const Shape& a, const Shape& b);

// Operands passed by value may be moved in: their memory is then reused for the result, if nobody
// else holds it.
[[nodiscard]] Tensor unary(Unary op, Tensor x, const char* what);
[[nodiscard]] Tensor binary(Binary op, Tensor a, const Tensor& b, const char* what);
[[nodiscard]] Tensor scalar(Scalar op, Tensor x, double s, const char* what);

// to += from, in place; from is converted to to's dtype. Any floating dtype.
void add_into(const Tensor& to, const Tensor& from);

}  // namespace ringsmith::raw
