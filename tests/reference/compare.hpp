// The permitted distance from PyTorch's results. A NaN never passes.
#pragma once

#include <string>

#include "runtime/tensor/tensor.hpp"

namespace ringsmith::reference {

// Returns "" if got has want's dtype and shape and |got - want| <= tolerance everywhere, otherwise
// one line with the difference and the worst place. A NaN is always a difference.
[[nodiscard]] std::string difference(const Tensor& got, const Tensor& want, double tolerance);

// Returns max(2 * torch_err, 1e-6 m) + 4 ulp of s. torch_err is the distance between PyTorch's own
// float32 and float64 results on the same inputs, and m the largest magnitude of want. The ulps are
// needed because torch_err is a single sample of a rounding error and may be small by chance. s is
// m or, if `source` has more elements than want and a larger magnitude, that magnitude: terms that
// nearly cancel were rounded at their own magnitude.
[[nodiscard]] double tolerance(const Tensor& want, double torch_err, const Tensor& source = {});
[[nodiscard]] double largest_magnitude(const Tensor& t);  // 0 for an empty tensor

}  // namespace ringsmith::reference
