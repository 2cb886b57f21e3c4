// gradcheck: checks that the gradient of a function is its slope.
//
// For random cotangents g, compares d/dx sum(f(x) * g) from backward() with the central difference
// (L(x + h) - L(x - h)) / 2h of each element, in f64. With h = 1e-5, the error of the difference is
// about 2e-11 times the third derivative, plus 1e-11 from rounding, so a tolerance of 1e-6 leaves
// no room for a wrong term. Inputs must not be near kinks (ties of a maximum, 0 of a relu).
//
// On a device (tests/support/device.hpp), compares result and gradients with the CPU's instead,
// whose slopes the other run checks. That takes two evaluations instead of thousands.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "runtime/tensor/tensor.hpp"
#include "tests/support/device.hpp"

namespace ringsmith::test {

// Distinct f64 values between -1 and 1, 2 / numel apart and at least 0.1 / numel from 0.
inline Tensor spread_values(const Shape& shape, unsigned seed) {
  const auto n = static_cast<std::size_t>(numel_of(shape));
  std::vector<double> values(n);
  for (std::size_t i = 0; i < n; ++i)
    values[i] = (static_cast<double>(i) + 0.55) / static_cast<double>(n) * 2 - 1;
  std::shuffle(values.begin(), values.end(), std::mt19937(seed));
  return from_vector(values, shape);
}

// Returns element i of t in row-major order, for any strides.
inline double& element(const Tensor& t, std::int64_t i) {
  std::int64_t offset = 0;
  for (int d = t.dim() - 1; d >= 0; --d) {
    offset += i % t.size(d) * t.strides()[static_cast<std::size_t>(d)];
    i /= t.size(d);
  }
  return t.data<double>()[offset];
}

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

// Returns the result and the gradients, computed on `where`. The inputs keep their strides.
inline std::vector<Tensor> evaluate(const Function& f, const std::vector<Tensor>& inputs,
                                    Device where) {
  std::vector<Tensor> in, out;
  for (const Tensor& t : inputs)
    in.push_back(t.defined() ? moved(t, where).detach().requires_grad_() : t);
  out.push_back(f(in));
  out[0].backward(spread_values(out[0].sizes(), 99).to(where));
  for (const Tensor& t : in) out.push_back(t.defined() ? t.grad() : t);
  return out;
}

// Returns "" if result and gradients agree with the CPU's, otherwise one line.
inline std::string agrees_with_cpu(const Function& f, const std::vector<Tensor>& inputs) {
  constexpr double kTolerance = 1e-11;  // for sums in another order
  const std::vector<Tensor> want = evaluate(f, inputs, Device::cpu());
  const std::vector<Tensor> got = evaluate(f, inputs, device());
  for (std::size_t k = 0; k < want.size(); ++k) {
    const std::string which = k == 0 ? "result" : "gradient of input " + std::to_string(k - 1);
    if (want[k].defined() != got[k].defined()) return which + ": is only on one of the devices";
    if (!want[k].defined()) continue;
    if (got[k].device() != device()) return which + ": is on " + got[k].device().str();
    if (got[k].sizes() != want[k].sizes()) return which + ": shape " + to_string(got[k].sizes());
    const auto a = got[k].to_vector<double>(), b = want[k].to_vector<double>();
    for (std::size_t i = 0; i < a.size(); ++i)
      if (!(std::abs(a[i] - b[i]) <= kTolerance * std::max(1.0, std::abs(b[i]))))
        return which + ", element " + std::to_string(i) + ": " + std::to_string(a[i]) + " on " +
               device().str() + ", " + std::to_string(b[i]) + " on the CPU";
  }
  return {};
}

// Returns "" if all gradients agree, otherwise one line with the first wrong element. Inputs may be
// undefined.
inline std::string gradcheck(const Function& f, const std::vector<Tensor>& inputs,
                             double tolerance = 1e-6) {
  if (!device().is_cpu()) return agrees_with_cpu(f, inputs);
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
    const Tensor values = inputs[k].detach();  // shares memory, and writes to it are not recorded
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
