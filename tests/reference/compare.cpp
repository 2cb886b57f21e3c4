#include "tests/reference/compare.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <vector>

namespace ringsmith::reference {

namespace {

std::vector<double> values(const Tensor& t) { return t.cpu().to(DType::f64).to_vector<double>(); }

}  // namespace

double largest_magnitude(const Tensor& t) {
  double largest = 0;
  for (const double v : values(t)) largest = std::max(largest, std::abs(v));
  return largest;
}

double tolerance(const Tensor& want, double torch_err, const Tensor& source) {
  constexpr double kRelative = 1e-6, kUlps = 4 * std::numeric_limits<float>::epsilon();
  const double largest = largest_magnitude(want);
  const bool summed = source.defined() && want.numel() < source.numel();
  return std::max(2 * torch_err, kRelative * largest) +
         kUlps * (summed ? std::max(largest, largest_magnitude(source)) : largest);
}

std::string difference(const Tensor& got, const Tensor& want, double tolerance) {
  if (!got.defined()) return "no tensor where one was expected";
  if (got.dtype() != want.dtype())
    return fmt::format("dtype {}, expected {}", name_of(got.dtype()), name_of(want.dtype()));
  if (got.sizes() != want.sizes())
    return fmt::format("shape {}, expected {}", to_string(got.sizes()), to_string(want.sizes()));
  const std::vector<double> a = values(got), b = values(want);
  std::size_t worst = 0, wrong = 0;
  double largest = -1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]);
    if (d <= tolerance) continue;  // false for NaN
    ++wrong;
    if (std::isnan(d) || d > largest) {
      worst = i;
      largest = std::isnan(d) ? HUGE_VAL : d;
    }
  }
  if (wrong == 0) return {};
  return fmt::format(
      "{} of {} elements differ; worst at {}: {:.9g}, expected {:.9g} (off by {:.3g}, "
      "allowed {:.3g})",
      wrong, a.size(), worst, a[worst], b[worst], std::abs(a[worst] - b[worst]), tolerance);
}

}  // namespace ringsmith::reference
