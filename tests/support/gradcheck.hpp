// gradcheck: is the gradient of a function the slope of that function?
//
// For random cotangents g, d/dx sum(f(x) * g) from backward() is compared with the central
// difference (L(x + h) - L(x - h)) / 2h of each element, in f64: with h = 1e-5 the difference has
// an error of about 1e-10 of the third derivative and 1e-11 of rounding, so 1e-6 leaves no room for
// a wrong term. Inputs must keep clear of kinks (ties of a maximum, 0 of a relu).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "runtime/tensor/factory.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith::test {

// Distinct f64 values between -1 and 1, at least 0.9 / numel apart and never near 0.
inline Tensor spread_values(const Shape& shape, unsigned seed) {
  const auto n = static_cast<std::size_t>(numel_of(shape));
  std::vector<double> values(n);
  for (std::size_t i = 0; i < n; ++i)
    values[i] = (static_cast<double>(i) + 0.55) / static_cast<double>(n) * 2 - 1;
  std::shuffle(values.begin(), values.end(), std::mt19937(seed));
  return from_vector(values, shape);
}

// Element i of t in row-major order, whatever its strides.
inline double& element(const Tensor& t, std::int64_t i) {
  std::int64_t offset = 0;
  for (int d = t.dim() - 1; d >= 0; --d) {
    offset += i % t.size(d) * t.strides()[static_cast<std::size_t>(d)];
    i /= t.size(d);
  }
  return t.data<double>()[offset];
}

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

// Empty if all gradients agree, else one line naming the worst element. Undefined inputs stay so.
inline std::string gradcheck(const Function& f, const std::vector<Tensor>& inputs,
                             double tolerance = 1e-6) {
  constexpr double kStep = 1e-5;
  for (const Tensor& t : inputs)
    if (t.defined()) t.requires_grad_();
  const Tensor y = f(inputs);
  const Tensor g = spread_values(y.sizes(), 99);
  y.backward(g);
  const auto loss = [&] {
    const std::vector<double> a = f(inputs).to_vector<double>(), b = g.to_vector<double>();
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  };
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (!inputs[k].defined()) continue;
    const Tensor grad = inputs[k].grad();
    if (!grad.defined()) return "input " + std::to_string(k) + " got no gradient";
    if (grad.sizes() != inputs[k].sizes())
      return "input " + std::to_string(k) + ": gradient of shape " + to_string(grad.sizes());
    const std::vector<double> got = grad.to_vector<double>();
    const Tensor values = inputs[k].detach();  // shares memory, and writing to it records nothing
    for (std::size_t i = 0; i < got.size(); ++i) {
      double& x = element(values, static_cast<std::int64_t>(i));
      const double kept = x;
      x = kept + kStep;
      const double above = loss();
      x = kept - kStep;
      const double below = loss();
      x = kept;
      const double want = (above - below) / (2 * kStep);
      if (!(std::abs(got[i] - want) <= tolerance * std::max(1.0, std::abs(want))))
        return "input " + std::to_string(k) + ", element " + std::to_string(i) + ": gradient " +
               std::to_string(got[i]) + ", slope " + std::to_string(want);
    }
  }
  return {};
}

}  // namespace ringsmith::test
