// deal SAMPLES RANKS [EPOCH [START [cut]]]: how the runtime's sampler distributes an epoch.
//
// The first line is the order of the epoch, padded or cut; the lines below it are the ranks'
// shares. START: how many samples each rank has used already.
#include <cstdio>
#include <vector>

#include "lessons/arguments.hpp"
#include "runtime/data/sampler.hpp"

using namespace ringsmith;

int main(int argc, char** argv) {
  const lessons::Arguments given(argc, argv, "deal SAMPLES RANKS [EPOCH [START [pad|cut]]]", 5);
  const long samples = given.whole(1, 10, 0, 100'000), ranks = given.whole(2, 3, 1, 1000);
  const long epoch = given.whole(3, 0, 0, 1'000'000);
  DistributedSamplerOptions options;
  options.replicas = static_cast<int>(ranks);
  options.drop_last = given.second(5, "pad", "cut");
  const long share = options.drop_last ? samples / ranks : (samples + ranks - 1) / ranks;
  const long start = given.whole(4, 0, 0, share);

  std::vector<std::vector<std::int64_t>> shares;
  for (options.rank = 0; options.rank < options.replicas; ++options.rank) {
    DistributedSampler sampler(samples, options);
    sampler.set_epoch(epoch, start);
    shares.push_back(sampler.indices());
  }
  std::printf("order of epoch %ld", epoch);
  for (std::size_t i = 0; i < shares[0].size(); ++i)
    for (int rank = 0; rank < options.replicas; ++rank) {
      const long place =
          (static_cast<long>(i) + start) * options.replicas + static_cast<long>(rank);
      std::printf("%s%2ld", place == samples ? " | " : " ",
                  static_cast<long>(shares[static_cast<std::size_t>(rank)][i]));
    }
  std::printf("\n");
  for (int rank = 0; rank < options.replicas; ++rank) {
    std::printf("  rank %d:", rank);
    for (const std::int64_t sample : shares[static_cast<std::size_t>(rank)])
      std::printf(" %2ld", static_cast<long>(sample));
    std::printf("   (%zu)\n", shares[static_cast<std::size_t>(rank)].size());
  }
}
