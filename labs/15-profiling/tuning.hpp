// Lab 15, part 2: predicting the gain of a tuning.
//
//   gradients   | |  | |   |    |        ready at these times, in this order
//   cap small   [=][=][=][=][=][=]       each bucket costs alpha
//   cap good        [==] [==]  [==]
//   cap large                   [======] starts late
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "labs/kit/todo.hpp"

namespace lab15 {

using Time = std::int64_t;  // nanoseconds

// A gradient that is complete at `ready`, counted from the start of backward (0 or more).
struct Gradient {
  Time ready = 0;
  std::int64_t bytes = 0;  // 0 or more
};

struct Network {
  Time alpha = 0;         // nanoseconds per all-reduce
  std::int64_t beta = 0;  // picoseconds per byte: 80 is 12.5 GB/s
};

// Given. Returns the time of one all-reduce, rounded up to a nanosecond.
inline Time all_reduce_time(const Network& network, std::int64_t bytes) {
  return network.alpha + (bytes * network.beta + 999) / 1000;
}

// Task 6. Returns the end of the last all-reduce; 0 without gradients. Gradients are appended to
// the open bucket in the given order. A bucket is closed as soon as it has `cap` bytes or more; the
// end of the list closes the last one. (So a large gradient is never split, and stays in the bucket
// that it overfills.) A bucket can be sent when all its gradients are ready and the previous bucket
// is finished. Throws std::invalid_argument if cap is below 1.
inline Time last_end(std::span<const Gradient> gradients, const Network& network,
                     std::int64_t cap) {
#ifdef SOLUTION
  if (cap < 1) throw std::invalid_argument("last_end: the cap must be 1 byte or more");
  Time ready = 0, end = 0;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    ready = std::max(ready, gradients[i].ready);
    bytes += gradients[i].bytes;
    if (bytes < cap && i + 1 < gradients.size()) continue;
    end = std::max(ready, end) + all_reduce_time(network, bytes);
    ready = bytes = 0;
  }
  return end;
#else
  (void)gradients, (void)network, (void)cap;
  kit::todo("task 6, last_end");
#endif
}

// Task 6. Returns the cap with the earliest end of the last all-reduce; of several, the largest,
// because it needs fewer messages. The caps are not sorted. Throws std::invalid_argument if there
// are none.
inline std::int64_t best_cap(std::span<const Gradient> gradients, const Network& network,
                             std::span<const std::int64_t> caps) {
#ifdef SOLUTION
  if (caps.empty()) throw std::invalid_argument("best_cap: no cap");
  std::int64_t best = 0;
  Time first = std::numeric_limits<Time>::max();
  for (const std::int64_t cap : caps) {
    const Time end = last_end(gradients, network, cap);
    if (end < first || (end == first && cap > best)) best = cap, first = end;
  }
  return best;
#else
  (void)gradients, (void)network, (void)caps;
  kit::todo("task 6, best_cap");
#endif
}

// Task 7. Returns a lower bound on the end, for any buckets in any order; 0 without gradients. The
// gradients that are ready at t or later take at least one all-reduce, which begins at t at the
// earliest. The bound is the latest such end over all t at which a gradient is ready. O(n log n).
inline Time earliest_end(std::span<const Gradient> gradients, const Network& network) {
#ifdef SOLUTION
  std::vector<Gradient> latest(gradients.begin(), gradients.end());
  std::sort(latest.begin(), latest.end(),
            [](const Gradient& a, const Gradient& b) { return a.ready > b.ready; });
  Time end = 0;
  std::int64_t bytes = 0;
  for (const Gradient& g : latest) {
    bytes += g.bytes;
    end = std::max(end, g.ready + all_reduce_time(network, bytes));
  }
  return end;
#else
  (void)gradients, (void)network;
  kit::todo("task 7, earliest_end");
#endif
}

struct Machine {         // both above 0
  double peak = 1;       // floating-point operations per second
  double bandwidth = 1;  // bytes per second
};

struct Kernel {  // the work and the measured time summed over all its calls
  std::int64_t flops = 0;
  std::int64_t bytes = 0;  // to and from memory
  Time time = 0;           // measured
};

// Task 8. Returns the intensity (operations per byte) above which the peak is the limit.
inline double ridge(const Machine& machine) {
#ifdef SOLUTION
  return machine.peak / machine.bandwidth;
#else
  (void)machine;
  kit::todo("task 8, ridge");
#endif
}

// Task 8. Returns the least possible time in nanoseconds. Arithmetic and memory traffic overlap, so
// the longer of the two decides.
inline double least_time(const Machine& machine, const Kernel& kernel) {
#ifdef SOLUTION
  return 1e9 *
         std::max(double(kernel.flops) / machine.peak, double(kernel.bytes) / machine.bandwidth);
#else
  (void)machine, (void)kernel;
  kit::todo("task 8, least_time");
#endif
}

enum class Limit { compute, memory };

// Task 8. Returns whether arithmetic or memory traffic takes longer; compute if they are equal.
inline Limit limit(const Machine& machine, const Kernel& kernel) {
#ifdef SOLUTION
  return double(kernel.flops) * machine.bandwidth >= double(kernel.bytes) * machine.peak
             ? Limit::compute
             : Limit::memory;
#else
  (void)machine, (void)kernel;
  kit::todo("task 8, limit");
#endif
}

// Task 8. Returns the roof at this kernel's intensity, in operations per second. 0 for a kernel
// without operations.
inline double attainable(const Machine& machine, const Kernel& kernel) {
#ifdef SOLUTION
  if (kernel.flops == 0) return 0;
  if (kernel.bytes == 0) return machine.peak;
  return std::min(machine.peak, machine.bandwidth * double(kernel.flops) / double(kernel.bytes));
#else
  (void)machine, (void)kernel;
  kit::todo("task 8, attainable");
#endif
}

// Task 8. Returns the share of the roof that was reached: the least possible time divided by the
// measured one. Do not cap values above 1: they tell the reader that the bytes came from a cache or
// that the machine's numbers are wrong. Throws std::invalid_argument if the time is not above 0.
inline double roof_share(const Machine& machine, const Kernel& kernel) {
#ifdef SOLUTION
  if (kernel.time <= 0) throw std::invalid_argument("roof_share: a kernel takes time");
  return least_time(machine, kernel) / double(kernel.time);
#else
  (void)machine, (void)kernel;
  kit::todo("task 8, roof_share");
#endif
}

// Task 9. Returns the index of the kernel to tune first: the one that would save the most time if
// it reached its roof (of several, the first). Returns -1 if no kernel could save any time.
inline std::int64_t first_to_tune(const Machine& machine, std::span<const Kernel> kernels) {
#ifdef SOLUTION
  std::int64_t found = -1;
  double most = 0;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const double win = double(kernels[i].time) - least_time(machine, kernels[i]);
    if (win > most) most = win, found = std::int64_t(i);
  }
  return found;
#else
  (void)machine, (void)kernels;
  kit::todo("task 9, first_to_tune");
#endif
}

}  // namespace lab15
