#include "runtime/nn/init.hpp"

#include <cmath>

#include "runtime/base/rng.hpp"

namespace ringsmith::init {

Tensor uniform(const Shape& shape, double bound) {
  Tensor t = Tensor::empty(shape);
  fill_uniform(t.span<float>(), -bound, bound, default_generator());
  return t;
}

Tensor normal(const Shape& shape, double stddev) {
  Tensor t = Tensor::empty(shape);
  fill_normal(t.span<float>(), 0, stddev, default_generator());
  return t;
}

Tensor constant(const Shape& shape, double value) {
  Tensor t = Tensor::empty(shape);
  t.fill_(value);
  return t;
}

// Written with PyTorch's own roundings: sqrt(5) squared is not 5 in double.
double weight_bound(std::int64_t fan_in) {
  const double slope = std::sqrt(5.0);
  const double gain = std::sqrt(2.0 / (1 + slope * slope));
  return std::sqrt(3.0) * (gain / std::sqrt(static_cast<double>(fan_in)));
}

double bias_bound(std::int64_t fan_in) { return 1 / std::sqrt(static_cast<double>(fan_in)); }

}  // namespace ringsmith::init
