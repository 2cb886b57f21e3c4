// broken: the samples that 4 ranks see of 1002 in 3 epochs, with the sampler used correctly, and
// with each of the usual mistakes. Columns: places, samples unseen and samples seen twice or more
// in epoch 0; samples never seen in the three epochs; the number of different orders.
#include <cstdio>
#include <set>
#include <vector>

#include "runtime/data/sampler.hpp"

using namespace ringsmith;
using Order = std::vector<std::int64_t>;

constexpr int kRanks = 4, kEpochs = 3;
constexpr std::int64_t kSamples = 1002;

struct Way {
  const char* name;
  bool seed_per_rank, set_epoch, drop_last, sharded;
};

// Returns all ranks' samples of an epoch, in the order in which the steps use them.
Order epoch_of(const Way& way, int epoch) {
  std::vector<Order> shares;
  for (int rank = 0; rank < kRanks; ++rank) {
    DistributedSamplerOptions options;
    options.replicas = way.sharded ? kRanks : 1;
    options.rank = way.sharded ? rank : 0;
    options.seed = way.seed_per_rank ? static_cast<std::uint64_t>(42 + rank) : 42;
    options.drop_last = way.drop_last;
    DistributedSampler sampler(kSamples, options);
    if (way.set_epoch) sampler.set_epoch(epoch);
    shares.push_back(sampler.indices());
  }
  Order all;
  for (std::size_t i = 0; i < shares[0].size(); ++i)
    for (const Order& share : shares) all.push_back(share[i]);
  return all;
}

int main() {
  std::printf("%-32s %7s %7s %7s %7s %7s\n", "1002 samples, 4 ranks, 3 epochs", "used", "unseen",
              "twice", "never", "orders");
  for (const Way& way : {Way{"right", false, true, false, true},
                         Way{"right, cut instead of padded", false, true, true, true},
                         Way{"a seed for each rank", true, true, false, true},
                         Way{"set_epoch forgotten", false, false, false, true},
                         Way{"cut, and set_epoch forgotten", false, false, true, true},
                         Way{"no distributed sampler", false, true, false, false}}) {
    std::set<Order> orders;
    std::vector<int> times(kSamples), first(kSamples);
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      const Order order = epoch_of(way, epoch);
      orders.insert(order);
      for (const std::int64_t sample : order) {
        ++times[static_cast<std::size_t>(sample)];
        if (epoch == 0) ++first[static_cast<std::size_t>(sample)];
      }
    }
    long used = 0, unseen = 0, twice = 0, never = 0;
    for (std::size_t i = 0; i < times.size(); ++i) {
      used += first[i];
      unseen += first[i] == 0;
      never += times[i] == 0;
      twice += first[i] > 1;
    }
    std::printf("%-32s %7ld %7ld %7ld %7ld %7zu\n", way.name, used, unseen, twice, never,
                orders.size());
  }

  // A metric over a padded order: samples 0, 1 and 2 of 10 are answered wrongly.
  DistributedSamplerOptions options;
  options.replicas = kRanks;
  options.shuffle = false;
  int right = 0, asked = 0;
  for (options.rank = 0; options.rank < kRanks; ++options.rank) {
    DistributedSampler sampler(10, options);
    for (const std::int64_t sample : sampler.indices()) {
      right += sample > 2;
      ++asked;
    }
  }
  std::printf("7 of 10 answers are right; 4 ranks with padding count %d of %d, %.1f %%\n", right,
              asked, 100.0 * right / asked);
}
