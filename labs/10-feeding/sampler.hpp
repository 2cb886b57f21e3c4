// Lab 10, part 1: the order of the samples, and their distribution over the ranks.
//
//   order of the epoch   4 1 7 5 3 9 0 8 6 2 | 4 1      10 samples, 3 ranks: padded with its start
//   rank 0               4     5     0     2            every third sample, from place `rank` on
//   rank 1                 1     3     8       4
//   rank 2                   7     9     6       1
//
// Every rank computes the same order and takes its own places: nothing is sent.
// torch.utils.data.DistributedSampler with the same arguments gives the same indices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "labs/kit/todo.hpp"

namespace lab10 {

// Task 1. Returns the permutation of 0 .. n-1 that torch.randperm(n) draws on a CPU after
// manual_seed(seed):
//   - the engine is MT19937 (std::mt19937), seeded with the low 32 bits of seed;
//   - begin with 0 1 2 ... n-1; for i = 0 .. n-2 draw one 32-bit word and swap element i with
//     element i + word % (n - i). The last element is left where it is: n-1 draws.
inline std::vector<std::int64_t> randperm(std::int64_t n, std::uint64_t seed) {
#ifdef SOLUTION
  std::mt19937 engine(static_cast<std::uint32_t>(seed));
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::size_t i = 0; i + 1 < order.size(); ++i)
    std::swap(order[i], order[i + engine() % (order.size() - i)]);
  return order;
#else
  (void)n, (void)seed;
  kit::todo("task 1, randperm");
#endif
}

struct SamplerOptions {
  int world = 1;
  int rank = 0;
  bool shuffle = true;     // else the order of every epoch is 0 1 2 ...
  std::uint64_t seed = 0;  // equal on all ranks; an epoch's order is drawn from seed + epoch
  bool drop_last =
      false;  // drop the remainder of a division by world, instead of repeating samples
};

class DistributedSampler {
 public:
  DistributedSampler(std::int64_t samples, SamplerOptions options)
      : samples_(samples), options_(options) {}

  // Task 3. From now on indices() and size() refer to this epoch. used: number of places of the
  // epoch's order that have already been used, summed over all ranks. A job that resumes mid-epoch
  // begins at place `used`, perhaps with a different number of ranks. The rest is distributed like
  // a whole order, and is also padded with the beginning of the epoch's order, not of the rest.
  // Before the first call: epoch 0, nothing used.
  void set_epoch(std::int64_t epoch, std::int64_t used = 0) {
#ifdef SOLUTION
    epoch_ = epoch;
    used_ = used;
#else
    (void)epoch, (void)used;
    kit::todo("task 3, DistributedSampler::set_epoch");
#endif
  }

  // Task 2. Returns the number of samples of each rank, the same on all ranks.
  [[nodiscard]] std::int64_t size() const {
#ifdef SOLUTION
    const std::int64_t left = std::max<std::int64_t>(samples_ - used_, 0);
    return (options_.drop_last ? left : left + options_.world - 1) / options_.world;
#else
    kit::todo("task 2, DistributedSampler::size");
#endif
  }

  // Task 2. Returns this rank's samples, in order. The order is padded with its own beginning,
  // repeatedly if there are fewer samples than ranks.
  [[nodiscard]] std::vector<std::int64_t> indices() const {
#ifdef SOLUTION
    std::vector<std::int64_t> order(static_cast<std::size_t>(samples_));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    const std::uint64_t seed = options_.seed + static_cast<std::uint64_t>(epoch_);
    if (options_.shuffle) order = randperm(samples_, seed);
    std::vector<std::int64_t> mine(static_cast<std::size_t>(size()));
    std::int64_t place = used_ + options_.rank;
    for (std::int64_t& sample : mine) {
      sample = order[static_cast<std::size_t>(place % samples_)];
      place += options_.world;
    }
    return mine;
#else
    kit::todo("task 2, DistributedSampler::indices");
#endif
  }

 private:
  std::int64_t samples_;
  SamplerOptions options_;
#ifdef SOLUTION
  std::int64_t epoch_ = 0;
  std::int64_t used_ = 0;
#endif
};

// Task 4. Returns the seed of all random choices for one sample: crops, flips, noise. It must not
// depend on the place where the sample is loaded (rank, world, worker), and must differ between any
// two seeds, epochs or samples. (The sum of the three does not suffice: 1 + 0 is 0 + 1.)
inline std::uint64_t sample_seed(std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
#ifdef SOLUTION
  // mix is SplitMix64's finalizer, a bijection whose output looks random.
  const auto mix = [](std::uint64_t x) {
    x += 0x9E3779B97F4A7C15U;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31);
  };
  return mix(mix(mix(seed) + static_cast<std::uint64_t>(epoch)) +
             static_cast<std::uint64_t>(sample));
#else
  (void)seed, (void)epoch, (void)sample;
  kit::todo("task 4, sample_seed");
#endif
}

}  // namespace lab10
