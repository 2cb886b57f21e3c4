// Helpers of the kernel tests.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "kernels/mode.hpp"

namespace ringsmith::testing {

class ModeScope {
 public:
  explicit ModeScope(kernels::Mode mode) : previous_(kernels::mode()) { kernels::set_mode(mode); }
  ~ModeScope() { kernels::set_mode(previous_); }
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  kernels::Mode previous_;
};

inline std::vector<float> random_values(std::int64_t n, unsigned seed, float scale = 1.0F) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) v = normal(generator);
  return values;
}

inline std::vector<double> widen(const std::vector<float>& x) { return {x.begin(), x.end()}; }
inline std::vector<float> narrow(const std::vector<double>& x) {
  std::vector<float> y;
  for (const double v : x) y.push_back(static_cast<float>(v));
  return y;
}

// Returns the largest |a - b| / max(1, |b|max); infinity if the sizes or non-finite values differ.
inline double distance(std::span<const float> a, std::span<const float> b) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return kInf;
  double largest = 1, most = 0;
  for (const float y : b)
    if (std::isfinite(y)) largest = std::fmax(largest, std::abs(static_cast<double>(y)));
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(b[i]) ? std::isnan(a[i]) : (!std::isfinite(b[i]) && a[i] == b[i])) continue;
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= most)) most = std::isnan(d) ? kInf : d;
  }
  return most / largest;
}

}  // namespace ringsmith::testing
