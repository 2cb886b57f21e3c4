// Unusual and correct: the loss is log(1 + the weights of the other classes relative to the
// target), and the target's gradient is minus the sum of all other gradients.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "layers.hpp"

namespace lab04 {

struct Loss {
  float value = 0;
  Matrix grad;
};

inline Loss cross_entropy(const Matrix& logits, const std::vector<std::int64_t>& targets) {
  if (targets.empty() || targets.size() != logits.rows) throw std::invalid_argument("rows");
  std::vector<double> losses;
  Loss result{0, logits};
  for (std::size_t r = 0; r < logits.rows; ++r) {
    if (targets[r] < 0 || std::size_t(targets[r]) >= logits.cols)
      throw std::invalid_argument("class");
    const auto t = std::size_t(targets[r]);
    double top = 0;  // largest difference from the target's logit; its own difference is 0
    for (std::size_t j = 0; j < logits.cols; ++j)
      top = std::max(top, double(logits(r, j)) - logits(r, t));
    std::vector<double> weights(logits.cols);
    for (std::size_t j = 0; j < logits.cols; ++j)
      weights[j] = std::exp(double(logits(r, j)) - logits(r, t) - top);
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    losses.push_back(top + std::log(all));
    double others = 0;
    for (std::size_t j = 0; j < logits.cols; ++j) {
      const double g = weights[j] / all / double(targets.size());
      result.grad(r, j) = float(g);
      if (j != t) others += g;
    }
    result.grad(r, t) = float(-others);
  }
  result.value = float(std::accumulate(losses.begin(), losses.end(), 0.0) / double(losses.size()));
  return result;
}

}  // namespace lab04
