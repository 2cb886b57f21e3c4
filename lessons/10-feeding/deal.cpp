// deal SAMPLES RANKS [EPOCH [START [cut]]]: how the runtime's sampler distributes an epoch.
//
// The first line is the order of the epoch, padded or cut; the lines below it are the ranks'
// shares. START: how many samples each rank has used already.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "runtime/data/sampler.hpp"

using namespace ringsmith;

int main(int argc, char** argv) {
  const auto number = [&](int at, long fallback) {
    return argc > at ? std::atol(argv[at]) : fallback;
  };
  const long samples = number(1, 10), epoch = number(3, 0), start = number(4, 0);
  DistributedSamplerOptions options;
  options.replicas = static_cast<int>(number(2, 3));
  options.drop_last = argc > 5 && std::strcmp(argv[5], "cut") == 0;

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
