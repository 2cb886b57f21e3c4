// Helpers that the model functions share: dtype dispatch, checks, gradient destinations.
#pragma once

#include <string>

#include "runtime/autograd/tensor_grad.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith::detail {

using raw::common_device, raw::wide;

// Calls f(TypeTag<float>) or f(TypeTag<double>). Throws a UsageError that names the function for
// other dtypes. Callers must have widened 16-bit operands with wide().
template <class F>
void visit_float_type(const char* function, DType dtype, const F& f) {
  if (dtype == DType::f32) return f(TypeTag<float>{});
  if (dtype == DType::f64) return f(TypeTag<double>{});
  throw UsageError(std::string(function) + ": dtype " + std::string(name_of(dtype)) +
                   ", expected f32, f64, f16 or bf16");
}

// A contiguous tensor as a span for a kernel; empty if the tensor is undefined.
template <class T>
std::span<const T> input(const Tensor& t) {
  return t.defined() ? t.kernel_span<T>() : std::span<T>();
}
template <class T>
std::span<T> output(const Tensor& t) {
  return t.defined() ? t.kernel_span<T>() : std::span<T>();
}

inline std::string shape_of(const Tensor& t) {
  return t.defined() ? to_string(t.sizes()) : std::string("nothing");
}

inline void require_dims(const char* function, const char* what, const Tensor& t, int dims,
                         const char* meaning) {
  require(t.defined() && t.dim() == dims,
          std::string(function) + ": " + what + " must be " + meaning + ", got " + shape_of(t));
}

inline int checked_dim(const char* function, const Tensor& t, int dim) {
  const int dims = t.dim();
  require(dim >= -dims && dim < dims, std::string(function) + ": dimension " + std::to_string(dim) +
                                          " of a tensor of shape " + to_string(t.sizes()));
  return dim < 0 ? dim + dims : dim;
}

// Returns the tensor into which a function writes the gradient of input i: a leaf's .grad or bucket
// slot if possible, otherwise new memory.
inline GradDestination grad_place(const Saved& saved, std::size_t i, const Shape& sizes,
                                  TensorOptions options) {
  GradDestination place = grad_destination(saved.edge(i));
  if (!place.tensor.defined() || place.tensor.options() != options)
    place = {Tensor::empty(sizes, options), false};
  return place;
}

}  // namespace ringsmith::detail
