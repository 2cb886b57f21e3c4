#include "runtime/tensor/factory.hpp"

namespace ringsmith {

Tensor rand(const Shape& sizes, Generator& g) {
  Tensor out = Tensor::empty(sizes);
  fill_uniform(out.span<float>(), 0.0, 1.0, g);
  return out;
}

Tensor randn(const Shape& sizes, Generator& g) {
  Tensor out = Tensor::empty(sizes);
  fill_normal(out.span<float>(), 0.0, 1.0, g);
  return out;
}

}  // namespace ringsmith
