// Unusual and correct: every algorithm is played round by round, with one clock per rank for the
// ring, and the crossover is found by bisection.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace lab05 {

struct Machine {
  double alpha = 0, beta = 0, gamma = 0;
};
struct Job {
  int world = 1;
  std::size_t count = 0;
  std::size_t element = 4;
};
enum class Algorithm { flat, tree, ring };
struct Sample {
  double bytes = 0, seconds = 0;
};

inline double message_time(const Machine& m, double bytes) {
  return std::fma(bytes, m.beta, m.alpha);
}

inline double flat_time(const Machine& m, const Job& job) {
  const double bytes = double(job.count * job.element);
  double clock = 0;
  for (int r = 1; r < job.world; ++r) clock += message_time(m, bytes) + bytes * m.gamma;
  for (int r = 1; r < job.world; ++r) clock += message_time(m, bytes);
  return clock;
}

inline int tree_rounds(int world) {
  int rounds = 0;
  for (int left = world; left > 1; left -= left / 2) ++rounds;
  return rounds;
}

inline double tree_for(const Machine& m, int world, double bytes) {
  double clock = 0;
  for (int left = world; left > 1; left -= left / 2)
    clock += 2 * message_time(m, bytes) + bytes * m.gamma;
  return clock;
}
inline double tree_time(const Machine& m, const Job& job) {
  return tree_for(m, job.world, double(job.count * job.element));
}

inline double ring_time(const Machine& m, const Job& job) {
  const std::size_t n = std::size_t(job.world);
  std::vector<double> clock(n);
  for (std::size_t step = 0; step + step + 2 < 4 * n - 2 && n > 1 && step < 2 * n - 2; ++step) {
    std::vector<double> next(n);
    for (std::size_t r = 0; r < n; ++r) {
      const auto part = [&](std::size_t c) {
        return double((job.count / n + (c % n < job.count % n)) * job.element);
      };
      const std::size_t left = (r + n - 1) % n;
      const double in = part(4 * n + r - 2 - step), out = part(4 * n + r - 1 - step);
      next[r] = std::max({next[r], std::max(clock[r], clock[left]) + message_time(m, in) +
                                       (step < n - 1 ? in * m.gamma : 0)});
      next[r] = std::max(next[r], std::max(clock[r], clock[(r + 1) % n]) + message_time(m, out));
    }
    clock = next;
  }
  return *std::max_element(clock.begin(), clock.end());
}

inline Algorithm cheapest(const Machine& m, const Job& job) {
  const double times[] = {flat_time(m, job), tree_time(m, job), ring_time(m, job)};
  return Algorithm(std::min_element(times, times + 3) - times);
}

inline double crossover_bytes(const Machine& m, int world) {
  const auto saved = [&](double bytes) {  // tree minus ring, which is linear
    const double part = bytes / world;
    return tree_for(m, world, bytes) - (world - 1) * (2 * message_time(m, part) + part * m.gamma);
  };
  const double at0 = saved(0), slope = saved(1) - at0;
  if (tree_rounds(world) >= world - 1 || m.alpha == 0) return 0;
  if (m.beta == 0 && m.gamma == 0) return std::numeric_limits<double>::infinity();
  double low = 0, high = std::max(1.0, -2 * at0 / slope);
  while (saved(high) < 0) high *= 2;
  for (int i = 0; i < 200; ++i) (saved((low + high) / 2) < 0 ? low : high) = (low + high) / 2;
  return high;
}

inline double least_time(const Machine& m, const Job& job) {
  const double journeys = 2.0 * (job.world - 1) * double(job.count);
  return journeys / job.world * double(job.element) * m.beta;
}

// Linear regression from weighted means, with weights 1 / t^2.
inline Machine fit(std::span<const Sample> samples) {
  double weight = 0, bytes = 0, seconds = 0;
  const auto w = [](const Sample& s) { return 1 / (s.seconds * s.seconds); };
  for (const Sample& s : samples) {
    weight += w(s);
    bytes += w(s) * s.bytes;
    seconds += w(s) * s.seconds;
  }
  bytes /= weight;
  seconds /= weight;
  double over = 0, under = 0;
  for (const Sample& s : samples) {
    over += w(s) * (s.bytes - bytes) * (s.seconds - seconds);
    under += w(s) * (s.bytes - bytes) * (s.bytes - bytes);
  }
  return {seconds - over / under * bytes, over / under, 0};
}

}  // namespace lab05
