// How far a result may be from PyTorch's: equality before tolerance, and NaN never passes.
#pragma once

#include <string>

#include "runtime/tensor/tensor.hpp"

namespace ringsmith::reference {

// Empty if got has the dtype and shape of want and |got - want| <= tolerance everywhere; else one
// line that says what differs and where it is worst. A NaN on either side is a difference.
[[nodiscard]] std::string difference(const Tensor& got, const Tensor& want, double tolerance);

// max(2 * torch_err, 1e-6 m) + 4 ulp of s. torch_err is how far PyTorch's own float32 result is
// from its float64 result on the same inputs, m the largest magnitude of want. The ulps are there
// because torch_err is one sample of a rounding error, and now and then a lucky one. s is m, or,
// where want has fewer elements than the source it was summed from, the largest magnitude of that
// source if it is larger: terms that nearly cancel leave a small sum, but were rounded at their own
// size.
[[nodiscard]] double tolerance(const Tensor& want, double torch_err, const Tensor& source = {});
[[nodiscard]] double largest_magnitude(const Tensor& t);  // 0 for an empty tensor

}  // namespace ringsmith::reference
