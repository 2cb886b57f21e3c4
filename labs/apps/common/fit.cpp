#include "labs/apps/common/fit.hpp"

#include <cmath>
#include <limits>

namespace ringsmith::apps {

namespace {

using Matrix = std::vector<std::vector<double>>;

// Gaussian elimination with pivoting; false if the terms do not tell themselves apart.
bool solve(Matrix a, std::vector<double>& x) {
  const std::size_t n = x.size();
  for (std::size_t column = 0; column < n; ++column) {
    std::size_t pivot = column;
    for (std::size_t row = column + 1; row < n; ++row)
      if (std::abs(a[row][column]) > std::abs(a[pivot][column])) pivot = row;
    if (std::abs(a[pivot][column]) < 1e-12) return false;
    std::swap(a[pivot], a[column]);
    std::swap(x[pivot], x[column]);
    for (std::size_t row = 0; row < n; ++row) {
      if (row == column) continue;
      const double factor = a[row][column] / a[column][column];
      for (std::size_t k = column; k < n; ++k) a[row][k] -= factor * a[column][k];
      x[row] -= factor * x[column];
    }
  }
  for (std::size_t k = 0; k < n; ++k) x[k] /= a[k][k];
  return true;
}

double squared_error(const Matrix& terms, const std::vector<double>& constants,
                     const std::vector<double>& values) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    sum += std::pow(predict(constants, terms[i]) / values[i] - 1, 2);
  return sum;
}

// The best constants with only the chosen terms, by the normal equations; false if there are none.
bool fit_chosen(const Matrix& terms, const std::vector<double>& values,
                const std::vector<std::size_t>& chosen, std::vector<double>& constants) {
  Matrix normal(chosen.size(), std::vector<double>(chosen.size()));
  std::vector<double> x(chosen.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    for (std::size_t a = 0; a < chosen.size(); ++a) {
      const double left = terms[i][chosen[a]] / values[i];
      x[a] += left;
      for (std::size_t b = 0; b < chosen.size(); ++b)
        normal[a][b] += left * terms[i][chosen[b]] / values[i];
    }
  // Terms of very different size: scaled to a diagonal of ones before they are judged.
  std::vector<double> scale(chosen.size());
  for (std::size_t a = 0; a < chosen.size(); ++a) {
    if (!(normal[a][a] > 0)) return false;
    scale[a] = 1 / std::sqrt(normal[a][a]);
  }
  for (std::size_t a = 0; a < chosen.size(); ++a) {
    x[a] *= scale[a];
    for (std::size_t b = 0; b < chosen.size(); ++b) normal[a][b] *= scale[a] * scale[b];
  }
  if (!solve(normal, x)) return false;
  for (std::size_t a = 0; a < chosen.size(); ++a) constants[chosen[a]] = x[a] * scale[a];
  return true;
}

}  // namespace

double predict(const std::vector<double>& constants, const std::vector<double>& terms) {
  double sum = 0;
  for (std::size_t k = 0; k < constants.size(); ++k) sum += constants[k] * terms[k];
  return sum;
}

// Every choice of terms is tried: the best one without a negative constant is the answer.
std::vector<double> fit_non_negative(const Matrix& terms, const std::vector<double>& values) {
  const std::size_t n = terms.empty() ? 0 : terms[0].size();
  std::vector<double> best(n);
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t set = 1; set < std::size_t{1} << n; ++set) {
    std::vector<std::size_t> chosen;
    for (std::size_t k = 0; k < n; ++k)
      if ((set >> k & 1) != 0) chosen.push_back(k);
    std::vector<double> constants(n);
    if (chosen.size() > values.size() || !fit_chosen(terms, values, chosen, constants)) continue;
    bool legal = true;
    for (const double c : constants) legal = legal && c >= 0;
    if (!legal) continue;
    const double error = squared_error(terms, constants, values);
    if (error < least) {
      least = error;
      best = constants;
    }
  }
  return best;
}

}  // namespace ringsmith::apps
