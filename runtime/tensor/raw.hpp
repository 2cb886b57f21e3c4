// Kernels on tensors, without a graph: these functions allocate the result, broadcast the operands
// and call the kernel. They accept floating dtypes unless stated otherwise; for other dtypes they
// throw a UsageError that names the function.
//
// f16 and bf16 are storage formats: the kernel computes in f32, and the result is rounded once, as
// in PyTorch's kernels. On the CPU the operands are widened before and the result is rounded after
// the kernel. On a GPU, where memory is the limit, the kernel does both in registers: the same bits
// with a fifth of the traffic.
//
// The memory of the first operand may be reused for the result if it is moved in and no other
// handle shares it.
#pragma once

#include <string>
#include <vector>

#include "kernels/elementwise.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {
constexpr bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
}  // namespace ringsmith

namespace ringsmith::raw {

using kernels::Binary;
using kernels::Scalar;
using kernels::Unary;

// Calls f with the type tag of f32 or f64. Throws a UsageError naming `what` for other dtypes.
template <class F>
void visit_arithmetic(DType dtype, const char* what, F&& f) {
  if (dtype == DType::f32) return f(TypeTag<float>{});
  if (dtype == DType::f64) return f(TypeTag<double>{});
  throw UsageError(std::string(what) + " works on f32 and f64, not on " +
                   std::string(name_of(dtype)) + ": convert with to()");
}

// Dispatches on f16 and bf16 only.
template <class F>
void visit_half(DType dtype, const char* what, F&& f) {
  if (dtype == DType::f16) return f(TypeTag<f16>{});
  if (dtype == DType::bf16) return f(TypeTag<bf16>{});
  throw UsageError(std::string(what) + ": dtype " + std::string(name_of(dtype)) +
                   ", expected f16 or bf16");
}
// Dispatches on all four types, for kernels that have such instances: on devices, those of this
// file and layer_norm.
template <class F>
void visit_with_halves(DType dtype, const char* what, F&& f) {
  if (is_half(dtype)) return visit_half(dtype, what, f);
  visit_arithmetic(dtype, what, f);
}

// f16 or bf16 becomes f32; other tensors are unchanged.
[[nodiscard]] inline Tensor wide(const Tensor& t) {
  return t.defined() && is_half(t.dtype()) ? t.to(DType::f32) : t;
}

[[noreturn]] void refuse_devices(const char* what, Device a, Device b);
// Returns the operands' device. Throws a UsageError that names the devices if they differ.
// Undefined operands match any device, but the first must be defined.
template <class... Tensors>
Device common_device(const char* what, const Tensor& first, const Tensors&... rest) {
  const Device device = first.device();
  const auto look = [&](const Tensor& t) {
    if (t.defined() && t.device() != device) refuse_devices(what, device, t.device());
  };
  (look(rest), ...);
  return device;
}

[[nodiscard]] Tensor unary(Unary op, Tensor x, const char* what);
[[nodiscard]] Tensor binary(Binary op, Tensor a, const Tensor& b, const char* what);
// a + b for a of f32 and b of f16 or bf16: f32.
[[nodiscard]] Tensor add_widened(Tensor a, const Tensor& b, const char* what);
[[nodiscard]] Tensor scalar(Scalar op, Tensor x, double s, const char* what);
[[nodiscard]] Tensor masked_fill(Tensor x, const Tensor& mask, double value, const char* what);
[[nodiscard]] Tensor masked_scale(Tensor x, const Tensor& mask, double scale, const char* what);

// `to` += `from`, in place; `from` is converted to the dtype of `to`.
void add_into(const Tensor& to, const Tensor& from);
// In-place version of scalar().
void scalar_into(Scalar op, const Tensor& x, double s, const char* what);

// Returns for each dimension of x whether it is listed in dims. An empty list means all dimensions.
// Throws UsageError for a dimension that is out of range or listed twice.
[[nodiscard]] std::vector<bool> reduced_dims(const Tensor& x, const std::vector<int>& dims,
                                             const char* what);
[[nodiscard]] Tensor sum(const Tensor& x, const std::vector<bool>& reduced, bool keepdim,
                         const char* what);
// True if no element is NaN or infinite. Accepts any dtype. Waits for the device.
[[nodiscard]] bool all_finite(const Tensor& x);
// Undoes a broadcast: sums x down to `shape`, which must broadcast to x's shape. Returns x itself
// if the shapes are equal.
[[nodiscard]] Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace ringsmith::raw
