// Unusual and correct: sweeps the buckets backwards; computes the roof from two times.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <vector>

namespace lab15 {

using Time = std::int64_t;

struct Gradient {
  Time ready = 0;
  std::int64_t bytes = 0;
};

struct Network {
  Time alpha = 0;
  std::int64_t beta = 0;
};

inline Time all_reduce_time(const Network& network, std::int64_t bytes) {
  return network.alpha + (bytes * network.beta + 999) / 1000;
}

inline Time last_end(std::span<const Gradient> gradients, const Network& network,
                     std::int64_t cap) {
  if (cap <= 0) throw std::invalid_argument("cap");
  std::vector<Gradient> buckets;
  bool open = false;
  for (const Gradient& g : gradients) {
    if (!open) buckets.emplace_back();
    Gradient& bucket = buckets.back();
    bucket.ready = std::max(bucket.ready, g.ready);
    bucket.bytes += g.bytes;
    open = bucket.bytes < cap;
  }
  Time now = 0;
  for (const Gradient& b : buckets)
    now = std::max(now, b.ready) + all_reduce_time(network, b.bytes);
  return now;
}

inline std::int64_t best_cap(std::span<const Gradient> gradients, const Network& network,
                             std::span<const std::int64_t> caps) {
  if (caps.empty()) throw std::invalid_argument("no caps");
  std::map<Time, std::int64_t> by_end;
  for (const std::int64_t cap : caps) {
    std::int64_t& best = by_end[last_end(gradients, network, cap)];
    best = std::max(best, cap);
  }
  return by_end.begin()->second;
}

inline Time earliest_end(std::span<const Gradient> gradients, const Network& network) {
  std::map<Time, std::int64_t> bytes_at;
  for (const Gradient& g : gradients) bytes_at[g.ready] += g.bytes;
  Time end = 0;
  std::int64_t later = 0;
  for (auto i = bytes_at.rbegin(); i != bytes_at.rend(); ++i) {
    later += i->second;
    end = std::max(end, i->first + all_reduce_time(network, later));
  }
  return end;
}

struct Machine {
  double peak = 1;
  double bandwidth = 1;
};

struct Kernel {
  std::int64_t flops = 0;
  std::int64_t bytes = 0;
  Time time = 0;
};

inline double ridge(const Machine& machine) { return machine.peak / machine.bandwidth; }

enum class Limit { compute, memory };

inline double compute_time(const Machine& m, const Kernel& k) { return double(k.flops) / m.peak; }
inline double memory_time(const Machine& m, const Kernel& k) {
  return double(k.bytes) / m.bandwidth;
}

inline Limit limit(const Machine& machine, const Kernel& kernel) {
  return memory_time(machine, kernel) > compute_time(machine, kernel) ? Limit::memory
                                                                      : Limit::compute;
}

inline double least_time(const Machine& machine, const Kernel& kernel) {
  return limit(machine, kernel) == Limit::memory ? memory_time(machine, kernel) * 1e9
                                                 : compute_time(machine, kernel) * 1e9;
}

inline double attainable(const Machine& machine, const Kernel& kernel) {
  if (kernel.flops == 0) return 0;
  return double(kernel.flops) /
         std::max(compute_time(machine, kernel), memory_time(machine, kernel));
}

inline double roof_share(const Machine& machine, const Kernel& kernel) {
  if (kernel.time < 1) throw std::invalid_argument("time");
  if (kernel.flops == 0)
    return double(kernel.bytes) / (double(kernel.time) * 1e-9) / machine.bandwidth;
  return double(kernel.flops) / (double(kernel.time) * 1e-9) / attainable(machine, kernel);
}

inline std::int64_t first_to_tune(const Machine& machine, std::span<const Kernel> kernels) {
  const auto win = [&](const Kernel& k) { return double(k.time) - least_time(machine, k); };
  const auto best =
      std::max_element(kernels.begin(), kernels.end(),
                       [&](const Kernel& a, const Kernel& b) { return win(a) < win(b); });
  return best == kernels.end() || win(*best) <= 0 ? -1 : best - kernels.begin();
}

}  // namespace lab15
