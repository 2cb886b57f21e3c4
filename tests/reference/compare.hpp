// How far a result may be from PyTorch's: equality before tolerance, and NaN never passes.
#pragma once

#include <string>

#include "runtime/tensor/tensor.hpp"

namespace ringsmith::reference {

// Empty if got has the dtype and shape of want and |got - want| <= tolerance everywhere; else one
// line that says what differs and where it is worst. A NaN on either side is a difference.
[[nodiscard]] std::string difference(const Tensor& got, const Tensor& want, double tolerance);

// max(2 * torch_err, 1e-6 m) + 4 ulp of m, m being the largest magnitude of want. torch_err is how
// far PyTorch's own float32 result is from its float64 result on the same inputs. The ulps are
// there because torch_err is one sample of a rounding error, and now and then a lucky one: without
// them 3 of 10,320 checks on fresh sets fail, all in attention's gradients, by a third of an ulp.
[[nodiscard]] double tolerance(const Tensor& want, double torch_err);
[[nodiscard]] double largest_magnitude(const Tensor& t);  // 0 for an empty tensor

}  // namespace ringsmith::reference
