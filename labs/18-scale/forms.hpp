// Lab 18, part 1: formulas for a job of many ranks, and statistics to compare them with a
// simulation.
//
//     | work tau | save C | work tau | save C | wo X       X: a failure, on average every M
//                                             restart R, then redo the work since the last save
//
// Young (1974) and Daly (2006) balance the two costs of tau: short intervals save too often, long
// ones lose too much. All times here are doubles in the same, arbitrary unit, and may be infinite.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "labs/kit/todo.hpp"

namespace lab18 {

// Task 1. Returns the mean time between failures of a job that fails when any of its ranks does.
// ranks[r] is the MTBF of rank r, above 0, and infinity for a rank that never fails. Returns
// infinity if there are no ranks. Throws std::invalid_argument if any is NaN or not above 0.
inline double job_mtbf(std::span<const double> ranks) {
#ifdef SOLUTION
  double rate = 0;
  for (const double mtbf : ranks) {
    if (!(mtbf > 0)) throw std::invalid_argument("job_mtbf: every MTBF must be above 0");
    rate += 1 / mtbf;
  }
  return 1 / rate;
#else
  (void)ranks;
  kit::todo("task 1, job_mtbf");
#endif
}

// Task 1. Returns the probability of at least one failure within `duration`, when failures are
// memoryless (exponential times between them, of mean mtbf). Accurate to nine digits, even for
// short durations.
inline double chance_of_failure(double mtbf, double duration) {
#ifdef SOLUTION
  return -std::expm1(-duration / mtbf);
#else
  (void)mtbf, (void)duration;
  kit::todo("task 1, chance_of_failure");
#endif
}

// Task 2. Returns Young's interval: the work between two saves that take `save` each.
inline double young(double save, double mtbf) {
#ifdef SOLUTION
  return std::sqrt(2 * save * mtbf);
#else
  (void)save, (void)mtbf;
  kit::todo("task 2, young");
#endif
}

// Task 2. Returns Daly's interval: Young's, multiplied by (1 + x/3 + x^2/9), less save, where
// x = sqrt(save / (2 mtbf)). Returns mtbf itself if a save takes 2 mtbf or longer.
inline double daly(double save, double mtbf) {
#ifdef SOLUTION
  if (save >= 2 * mtbf) return mtbf;
  const double x = std::sqrt(save / (2 * mtbf));
  return young(save, mtbf) * (1 + x / 3 + x * x / 9) - save;
#else
  (void)save, (void)mtbf;
  kit::todo("task 2, daly");
#endif
}

// Task 3. Returns the expected time of a job of `work` that saves after each `interval` of work,
// but not at its end. A failure during work, a save or a restart starts a restart, after which the
// work since the last complete save is repeated. A stretch of length s from one complete save to
// the next, or to the end of the job, takes M e^(R/M) (e^(s/M) - 1). The time of a job that never
// saves depends neither on save nor on interval. work, interval > 0. mtbf may be infinite; the
// other four are finite.
inline double expected_time(double work, double interval, double save, double restart,
                            double mtbf) {
#ifdef SOLUTION
  const double saves = std::ceil(work / interval) - 1, last = work - saves * interval;
  if (std::isinf(mtbf)) return work + saves * save;  // avoids infinity * 0, which is NaN
  // Without a save, an interval whose exponential overflows must not matter.
  const double saved = saves > 0 ? saves * std::expm1((interval + save) / mtbf) : 0;
  return mtbf * std::exp(restart / mtbf) * (saved + std::expm1(last / mtbf));
#else
  (void)work, (void)interval, (void)save, (void)restart, (void)mtbf;
  kit::todo("task 3, expected_time");
#endif
}

// Task 3. Returns the share of time that a long job spends on useful work: interval / (expected
// time of interval and save).
inline double goodput(double interval, double save, double restart, double mtbf) {
#ifdef SOLUTION
  if (std::isinf(mtbf)) return interval / (interval + save);
  return interval / (mtbf * std::exp(restart / mtbf) * std::expm1((interval + save) / mtbf));
#else
  (void)interval, (void)save, (void)restart, (void)mtbf;
  kit::todo("task 3, goodput");
#endif
}

// Task 4. Returns the expected time of a step that waits for the slowest of `ranks` ranks, at most
// a million, each of which takes base plus an exponential time of mean `jitter` (both finite):
// base + jitter (1 + 1/2 + ... + 1/ranks).
inline double expected_slowest(double base, double jitter, std::int64_t ranks) {
#ifdef SOLUTION
  double sum = 0;
  for (std::int64_t n = ranks; n > 0; --n) sum += 1 / double(n);
  return base + jitter * sum;
#else
  (void)base, (void)jitter, (void)ranks;
  kit::todo("task 4, expected_slowest");
#endif
}

// The result of a simulation: a mean and its standard error.
struct Estimate {
  double mean = 0;
  double error = 0;
};

// Task 5. The standard error is s / sqrt(n), where s^2 is the sum of squared differences from the
// mean, divided by n - 1. For a single sample it is infinity. The samples may be huge and nearly
// equal: 1e15 and 1e15 + 1. Throws std::invalid_argument if there are none.
inline Estimate estimate(std::span<const double> samples) {
#ifdef SOLUTION
  if (samples.empty()) throw std::invalid_argument("estimate: no sample");
  const double n = double(samples.size()), first = samples[0];
  double sum = 0, squares = 0;
  for (const double x : samples) sum += x - first;
  const double mean = first + sum / n;
  for (const double x : samples) squares += (x - mean) * (x - mean);
  if (samples.size() == 1) return {mean, std::numeric_limits<double>::infinity()};
  return {mean, std::sqrt(squares / (n - 1) / n)};
#else
  (void)samples;
  kit::todo("task 5, estimate");
#endif
}

// Task 5. Returns the estimate of the differences a[i] - b[i], where a[i] and b[i] had the same
// failures. Throws std::invalid_argument if the sizes of a and b differ.
inline Estimate difference(std::span<const double> a, std::span<const double> b) {
#ifdef SOLUTION
  if (a.size() != b.size()) throw std::invalid_argument("difference: not as many a as b");
  std::vector<double> differences;
  for (std::size_t i = 0; i < a.size(); ++i) differences.push_back(a[i] - b[i]);
  return estimate(differences);
#else
  (void)a, (void)b;
  kit::todo("task 5, difference");
#endif
}

// Task 5. True if the mean is at most `errors` standard errors from `expected`. False if any of the
// numbers is NaN or infinite.
inline bool agrees(const Estimate& seen, double expected, double errors) {
#ifdef SOLUTION
  return std::isfinite(seen.error) && std::isfinite(expected) && std::isfinite(errors) &&
         std::isfinite(seen.mean) && std::abs(seen.mean - expected) <= errors * seen.error;
#else
  (void)seen, (void)expected, (void)errors;
  kit::todo("task 5, agrees");
#endif
}

}  // namespace lab18
