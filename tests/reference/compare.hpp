// The permitted distance from PyTorch's results. A NaN never passes.
#pragma once

#include <string>

#include "runtime/tensor/tensor.hpp"

namespace ringsmith::reference {

// Returns "" if got has the dtype and shape of want and |got - want| <= tolerance everywhere,
// otherwise one line with the difference and the worst place. A NaN on either side is a difference.
[[nodiscard]] std::string difference(const Tensor& got, const Tensor& want, double tolerance);

// Returns max(2 * torch_err, 1e-6 m) + 4 ulp of s. torch_err is the distance between PyTorch's own
// float32 and float64 results on the same inputs, and m the largest magnitude of want. The ulps are
// added because torch_err is a single sample of a rounding error, which is sometimes small by
// chance. s is m. If want was summed from a source with more elements, s is the largest magnitude
// of the source if that is larger, because terms that nearly cancel leave a small sum, but were
// rounded at their own magnitude.
[[nodiscard]] double tolerance(const Tensor& want, double torch_err, const Tensor& source = {});
[[nodiscard]] double largest_magnitude(const Tensor& t);  // 0 for an empty tensor

}  // namespace ringsmith::reference
