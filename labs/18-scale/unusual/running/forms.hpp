// Unusual and correct: the probability of a failure by tanh, Daly's series by Horner's rule, the
// expected time stretch by stretch, Welford's running mean.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>

namespace lab18 {

inline double job_mtbf(std::span<const double> ranks) {
  for (const double m : ranks)
    if (std::isnan(m) || m <= 0) throw std::invalid_argument("an MTBF that is none");
  return 1 / std::transform_reduce(ranks.begin(), ranks.end(), 0.0, std::plus<>(),
                                   [](double m) { return 1 / m; });
}

inline double chance_of_failure(double mtbf, double duration) {
  const double half = std::tanh(duration / mtbf / 2);  // 1 - exp(-x) = 2 t / (1 + t)
  return 2 * half / (1 + half);
}

inline double young(double save, double mtbf) { return std::sqrt(save) * std::sqrt(mtbf + mtbf); }

inline double daly(double save, double mtbf) {
  const double x = std::sqrt(save / mtbf / 2);
  return x >= 1 ? mtbf : young(save, mtbf) * (1 + x * (1.0 / 3 + x / 9)) - save;
}

// Returns the expected time from one complete save to the next, or to the end of the job.
inline double stretch(double length, double restart, double mtbf) {
  if (mtbf == std::numeric_limits<double>::infinity()) return length;
  return mtbf * std::expm1(length / mtbf) * std::exp(restart / mtbf);
}

inline double expected_time(double work, double interval, double save, double restart,
                            double mtbf) {
  double whole = std::floor(work / interval);
  if (whole * interval == work) --whole;
  const double last = stretch(work - whole * interval, restart, mtbf);
  return whole == 0 ? last : last + whole * stretch(interval + save, restart, mtbf);
}

inline double goodput(double interval, double save, double restart, double mtbf) {
  return interval / stretch(interval + save, restart, mtbf);
}

inline double expected_slowest(double base, double jitter, std::int64_t ranks) {
  return ranks == 0 ? base : expected_slowest(base, jitter, ranks - 1) + jitter / double(ranks);
}

struct Estimate {
  double mean = 0;
  double error = 0;
};

class Running {
 public:
  void add(double x) {
    if (n_ == 0) first_ = x;
    const double from_first = x - first_, before = from_first - mean_;
    mean_ += before / double(++n_);
    squares_ += before * (from_first - mean_);
  }
  [[nodiscard]] Estimate estimate() const {
    if (n_ == 0) throw std::invalid_argument("nothing to estimate");
    const double infinity = std::numeric_limits<double>::infinity();
    return {first_ + mean_,
            n_ == 1 ? infinity : std::sqrt(squares_ / double(n_ - 1)) / std::sqrt(double(n_))};
  }

 private:
  std::size_t n_ = 0;
  double first_ = 0, mean_ = 0, squares_ = 0;
};

inline Estimate estimate(std::span<const double> samples) {
  Running running;
  for (const double x : samples) running.add(x);
  return running.estimate();
}

inline Estimate difference(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) throw std::invalid_argument("no pairs");
  Running running;
  for (std::size_t i = 0; i < a.size(); ++i) running.add(a[i] - b[i]);
  return running.estimate();
}

inline bool agrees(const Estimate& seen, double expected, double errors) {
  for (const double x : {seen.mean, seen.error, expected, errors})
    if (!std::isfinite(x)) return false;
  const double far = errors * seen.error;
  return seen.mean - far <= expected && expected <= seen.mean + far;
}

}  // namespace lab18
