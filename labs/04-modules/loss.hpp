// Lab 04, part 2: cross-entropy.
//
// A row of logits z becomes probabilities by softmax, p_j = exp(z_j) / sum over k of exp(z_k). The
// loss of a row is -log p_t, where t is its target: 0 if the model is sure and right. The loss of a
// batch is the mean over its rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "layers.hpp"

namespace lab04 {

struct Loss {
  float value = 0;
  Matrix grad;  // d value / d logits
};

// Task 3. targets[r] is the class of row r. Throws std::invalid_argument for a class outside 0 ..
// cols - 1, for a batch without rows, and if there is not exactly one target per row. Finite
// logits, even 1000 or -1000, give a finite loss and gradient; a NaN in a row makes the loss NaN.
inline Loss cross_entropy(const Matrix& logits, const std::vector<std::int64_t>& targets) {
#ifdef SOLUTION
  if (logits.rows == 0 || targets.size() != logits.rows)
    throw std::invalid_argument("cross_entropy: " + std::to_string(logits.rows) + " rows and " +
                                std::to_string(targets.size()) + " targets");
  for (const std::int64_t t : targets)
    if (t < 0 || t >= std::int64_t(logits.cols))
      throw std::invalid_argument("cross_entropy: target " + std::to_string(t) + " of " +
                                  std::to_string(logits.cols) + " classes");
  Loss loss{0, Matrix(logits.rows, logits.cols)};
  double total = 0;
  for (std::size_t r = 0; r < logits.rows; ++r) {
    const std::size_t target = std::size_t(targets[r]);
    float largest = logits(r, 0);
    for (std::size_t j = 1; j < logits.cols; ++j) largest = std::max(largest, logits(r, j));
    // Shifts the logits by the largest, so that no exponential overflows and one of them is 1.
    double sum = 0;
    for (std::size_t j = 0; j < logits.cols; ++j) sum += std::exp(double(logits(r, j)) - largest);
    const double log_sum = std::log(sum);
    total += log_sum - (double(logits(r, target)) - largest);
    for (std::size_t j = 0; j < logits.cols; ++j) {
      const double p = std::exp(double(logits(r, j)) - largest - log_sum);
      loss.grad(r, j) = float((p - (j == target ? 1 : 0)) / double(logits.rows));
    }
  }
  loss.value = float(total / double(logits.rows));
  return loss;
#else
  (void)logits, (void)targets;
  kit::todo("task 3, cross_entropy");
#endif
}

}  // namespace lab04
