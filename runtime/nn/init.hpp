// Initial values, drawn from the default generator in the order and with the bounds of PyTorch's
// layers: after the same manual_seed a model starts with the same weights.
#pragma once

#include "runtime/tensor/tensor.hpp"

namespace ringsmith::init {

[[nodiscard]] Tensor uniform(const Shape& shape, double bound);  // in [-bound, bound)
[[nodiscard]] Tensor normal(const Shape& shape, double stddev);
[[nodiscard]] Tensor constant(const Shape& shape, double value);

// Weights of Linear and Conv2d: Kaiming's uniform for a leaky ReLU of slope sqrt(5), that is
// 1 / sqrt(fan_in) up to rounding; their biases: exactly 1 / sqrt(fan_in).
[[nodiscard]] double weight_bound(std::int64_t fan_in);
[[nodiscard]] double bias_bound(std::int64_t fan_in);

}  // namespace ringsmith::init
