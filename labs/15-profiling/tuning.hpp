// Lab 15, part 2: what tuning can win, before it is tried.
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

// A gradient that is complete at `ready`, counted from the begin of backward (0 or above).
struct Gradient {
  Time ready = 0;
  std::int64_t bytes = 0;  // 0 or more
};

struct Network {
  Time alpha = 0;         // nanoseconds an all-reduce
  std::int64_t beta = 0;  // picoseconds a byte: 80 are 12.5 GB/s
};

// Given: one all-reduce, a part of a nanosecond rounded up.
inline Time all_reduce_time(const Network& network, std::int64_t bytes) {
  return network.alpha + (bytes * network.beta + 999) / 1000;
}

// Task 6. When the last all-reduce ends; 0 without gradients. Gradients are appended to the open
// bucket in the order in which they are given. A bucket is closed as soon as it has `cap` bytes or
// more; the end closes the last one. (So a large gradient is never split, and stays in the bucket
// that it overfills.) A bucket can be sent when all its gradients are ready, and after the bucket
// before it: one all-reduce at a time. std::invalid_argument if cap is below 1.
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

// Task 6. The cap with which the last all-reduce ends first; the largest of several: fewer
// messages. The caps come in no order. std::invalid_argument if there is none.
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

// Task 7. No buckets, in whatever order they are sent, end before this: what is ready at t or
// later takes one all-reduce at least, and that begins at t at the earliest; for every t at which
// a gradient is ready. The latest of these ends. 0 without gradients. O(n log n).
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
  double peak = 1;       // floating-point operations a second
  double bandwidth = 1;  // bytes a second
};

struct Kernel {  // what it has to do, all its calls together; and how long that took
  std::int64_t flops = 0;
  std::int64_t bytes = 0;  // to and from memory
  Time time = 0;           // as measured
};

// Task 8. The intensity (operations a byte) from which on the peak is the limit.
inline double ridge(const Machine& machine) {
#ifdef SOLUTION
  return machine.peak / machine.bandwidth;
#else
  (void)machine;
  kit::todo("task 8, ridge");
#endif
}

// Task 8. Nanoseconds, as a double: arithmetic and memory traffic overlap, the longer one decides.
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

// Task 8. Which of the two decides; compute if they are equal.
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

// Task 8. Operations a second at best, the roof above this kernel's intensity. 0 for a kernel
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

// Task 8. The share of the roof that was reached: of the time measured, the part that had to be;
// 1 is the roof. More than 1 is no error of yours: the bytes came from a cache, or the machine's
// numbers are wrong, and whoever reads it must see that. std::invalid_argument if the time is not
// above 0.
inline double roof_share(const Machine& machine, const Kernel& kernel) {
#ifdef SOLUTION
  if (kernel.time <= 0) throw std::invalid_argument("roof_share: a kernel takes time");
  return least_time(machine, kernel) / double(kernel.time);
#else
  (void)machine, (void)kernel;
  kit::todo("task 8, roof_share");
#endif
}

// Task 9. Which kernel to tune first: the one of which the most time could be won, were it as fast
// as its roof. Its place in the list, the first of several; -1 if nothing could be won of any.
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
