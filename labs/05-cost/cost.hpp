// Lab 05: the cost of an all-reduce, before one is written.
//
//   flat   all send to rank 0, which adds and sends back: 2 (N-1) messages one after another
//   tree   half of the remaining ranks send in a round:   2 log2 N rounds
//   ring   parts travel around: 2 (N-1) steps of a part each
//
// A message of S bytes takes alpha + S beta; adding S bytes takes S gamma. A rank sends one message
// at a time, receives one at a time, and may do both simultaneously. Units: seconds and bytes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "labs/kit/todo.hpp"

namespace lab05 {

struct Machine {
  double alpha = 0;  // seconds per message
  double beta = 0;   // seconds per byte moved
  double gamma = 0;  // seconds per byte added
};

// An all-reduce: `world` ranks, arrays of `count` elements of `element` bytes.
struct Job {
  int world = 1;
  std::size_t count = 0;
  std::size_t element = 4;
};

// Task 1. Returns the time of one message.
inline double message_time(const Machine& machine, double bytes) {
#ifdef SOLUTION
  return machine.alpha + bytes * machine.beta;
#else
  (void)machine, (void)bytes;
  kit::todo("task 1, message_time");
#endif
}

// Task 2. Ranks 1 to world-1 send their arrays to rank 0, which adds each array when it has
// arrived, and then sends the sum to each rank.
inline double flat_time(const Machine& machine, const Job& job) {
#ifdef SOLUTION
  const double bytes = double(job.count) * double(job.element), others = job.world - 1;
  return 2 * others * message_time(machine, bytes) + others * bytes * machine.gamma;
#else
  (void)machine, (void)job;
  kit::todo("task 2, flat_time");
#endif
}

// Task 3. Returns the number of rounds until one of `world` ranks is left, if in each round half of
// the remaining ranks (rounded down) pass their sums to another rank. 0 for one rank.
inline int tree_rounds(int world) {
#ifdef SOLUTION
  int rounds = 0;
  while ((1LL << rounds) < world) ++rounds;
  return rounds;
#else
  (void)world;
  kit::todo("task 3, tree_rounds");
#endif
}

// Task 3. Returns the time to send up the tree, adding in every round, and down without adding.
inline double tree_time(const Machine& machine, const Job& job) {
#ifdef SOLUTION
  const double bytes = double(job.count) * double(job.element), rounds = tree_rounds(job.world);
  return 2 * rounds * message_time(machine, bytes) + rounds * bytes * machine.gamma;
#else
  (void)machine, (void)job;
  kit::todo("task 3, tree_time");
#endif
}

// Task 4. Returns the time of the ring. The array is cut into world parts of whole elements, as
// equal as possible. In world-1 steps the received part is added; in world-1 more it replaces the
// old one. In each step every rank sends one part and receives one.
inline double ring_time(const Machine& machine, const Job& job) {
#ifdef SOLUTION
  // In every step, some link carries the longest part, which determines the time.
  const std::size_t world = std::size_t(job.world), longest = (job.count + world - 1) / world;
  const double bytes = double(longest) * double(job.element), half = job.world - 1;
  return 2 * half * message_time(machine, bytes) + half * bytes * machine.gamma;
#else
  (void)machine, (void)job;
  kit::todo("task 4, ring_time");
#endif
}

enum class Algorithm { flat, tree, ring };

// Task 5. Returns the cheapest of the three; any of them if several cost the same.
inline Algorithm cheapest(const Machine& machine, const Job& job) {
#ifdef SOLUTION
  const double flat = flat_time(machine, job), tree = tree_time(machine, job),
               ring = ring_time(machine, job);
  if (ring <= tree && ring <= flat) return Algorithm::ring;
  return tree <= flat ? Algorithm::tree : Algorithm::flat;
#else
  (void)machine, (void)job;
  kit::todo("task 5, cheapest");
#endif
}

// Task 6. Returns the smallest length in bytes at which the ring costs no more than the tree.
// Assume parts of exactly bytes / world, whole elements or not. Returns 0 if the ring never costs
// more, and infinity if it always does.
inline double crossover_bytes(const Machine& machine, int world) {
#ifdef SOLUTION
  const double n = world, rounds = tree_rounds(world);
  const double dearer = machine.alpha * (2 * (n - 1) - 2 * rounds);  // extra cost of the ring
  const double cheaper = machine.beta * (2 * rounds - 2 * (n - 1) / n) +
                         machine.gamma * (rounds - (n - 1) / n);  // its saving per byte
  if (dearer <= 0) return 0;
  return cheaper > 0 ? dearer / cheaper : std::numeric_limits<double>::infinity();
#else
  (void)machine, (void)world;
  kit::todo("task 6, crossover_bytes");
#endif
}

// Task 7. Returns a lower bound for the time of any all-reduce if only beta counts: each element
// must be sent world-1 times to be added and world-1 times to return the sum, and at best all ranks
// send equally much. (Not rounded to whole elements.)
inline double least_time(const Machine& machine, const Job& job) {
#ifdef SOLUTION
  const double bytes = double(job.count) * double(job.element), n = job.world;
  return 2 * (n - 1) / n * bytes * machine.beta;
#else
  (void)machine, (void)job;
  kit::todo("task 7, least_time");
#endif
}

// A measured message.
struct Sample {
  double bytes = 0;
  double seconds = 0;
};

// Task 8. Fits alpha and beta to measurements (gamma stays 0): minimizes the sum of the squares of
// (alpha + bytes beta - seconds) / seconds. The errors are relative, because 1 us is little
// compared with 10 ms, but much compared with 5 us. At least two lengths differ; no time is 0.
inline Machine fit(std::span<const Sample> samples) {
#ifdef SOLUTION
  // Solves the normal equations of alpha x + beta y = 1, x = 1 / seconds and y = bytes / seconds.
  double xx = 0, xy = 0, yy = 0, x1 = 0, y1 = 0;
  for (const Sample& sample : samples) {
    const double x = 1 / sample.seconds, y = sample.bytes / sample.seconds;
    xx += x * x, xy += x * y, yy += y * y, x1 += x, y1 += y;
  }
  const double determinant = xx * yy - xy * xy;
  return {(x1 * yy - y1 * xy) / determinant, (xx * y1 - xy * x1) / determinant, 0};
#else
  (void)samples;
  kit::todo("task 8, fit");
#endif
}

}  // namespace lab05
