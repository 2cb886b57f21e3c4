// Constants of a cost model from measurements: least squares in which no constant is negative.
//
//   time(N) = overhead + alpha * steps(N) + beta * bytes(N)
//
// A latency below zero fits noise, and grows into nonsense where the model is used: far outside of
// what was measured.
#pragma once

#include <vector>

namespace ringsmith::apps {

// terms[i][k]: term k at measurement i; at most a handful of terms. One constant for each term.
// Relative errors count, so that small measurements matter as much as large ones; values > 0.
[[nodiscard]] std::vector<double> fit_non_negative(const std::vector<std::vector<double>>& terms,
                                                   const std::vector<double>& values);

[[nodiscard]] double predict(const std::vector<double>& constants,
                             const std::vector<double>& terms);

}  // namespace ringsmith::apps
