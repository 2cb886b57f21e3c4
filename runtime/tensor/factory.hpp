// New tensors with values. Those that take no options are on the CPU: move them with to().
#pragma once

#include <vector>

#include "runtime/base/rng.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

Tensor full(const Shape& sizes, double value, TensorOptions options = {});
inline Tensor zeros(const Shape& sizes, TensorOptions options = {}) {
  return full(sizes, 0.0, options);
}
inline Tensor ones(const Shape& sizes, TensorOptions options = {}) {
  return full(sizes, 1.0, options);
}
inline Tensor empty_like(const Tensor& t) { return Tensor::empty(t.sizes(), t.options()); }
inline Tensor zeros_like(const Tensor& t) { return zeros(t.sizes(), t.options()); }
inline Tensor ones_like(const Tensor& t) { return ones(t.sizes(), t.options()); }

// start, start + step, ... below stop; i64 unless told otherwise.
Tensor arange(double start, double stop, double step = 1, TensorOptions options = {DType::i64});
inline Tensor arange(std::int64_t stop) { return arange(0, static_cast<double>(stop)); }

// A copy of the values, row-major. UsageError if their number does not fit the shape.
template <class T>
Tensor from_vector(const std::vector<T>& values, const Shape& sizes) {
  Tensor out = Tensor::empty(sizes, {dtype_of<T>()});
  require(static_cast<std::size_t>(out.numel()) == values.size(),
          std::to_string(values.size()) + " values do not fill shape " + to_string(sizes));
  T* to = out.data<T>();
  for (std::size_t i = 0; i < values.size(); ++i) to[i] = values[i];
  return out;
}
template <class T>
Tensor from_vector(const std::vector<T>& values) {
  return from_vector(values, {static_cast<std::int64_t>(values.size())});
}
// A tensor of no dimensions.
Tensor scalar(double value, DType dtype = DType::f32);

// Drawn as PyTorch's CPU generator does; f32. For a device they are drawn here and moved, so that a
// seed gives the same numbers everywhere.
// rand is uniform in [0, 1), randn normal with mean 0 and deviation 1.
Tensor rand(const Shape& sizes, Generator& g = default_generator());
Tensor randn(const Shape& sizes, Generator& g = default_generator());

}  // namespace ringsmith
