// ten [RANKS STEPS RANKS]: an epoch of ten samples, begun by the first number of ranks, killed
// after the steps, and finished by the second number of ranks. A step gives each rank one sample.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "lessons/arguments.hpp"
#include "runtime/data/sampler.hpp"

using namespace ringsmith;

namespace {

constexpr std::int64_t kSamples = 10;

// Prints one line per step, with the samples of its ranks. Plays at most `most` steps.
SamplerState play(int ranks, SamplerState from, std::int64_t most, int first_step) {
  std::vector<std::vector<std::int64_t>> shares;
  SamplerState reached;
  std::int64_t steps = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    DistributedSampler sampler(kSamples, {.replicas = ranks, .rank = rank});
    sampler.load_state(from);
    shares.push_back(sampler.indices());
    steps = std::min(most, std::ssize(shares.back()));
    reached = sampler.state(steps);
  }
  for (std::int64_t i = 0; i < steps; ++i) {
    std::printf("  step %d  ", first_step + static_cast<int>(i));
    for (int rank = 0; rank < ranks; ++rank)
      std::printf(" %ld", long(shares[std::size_t(rank)][std::size_t(i)]));
    std::printf("\n");
  }
  return reached;
}

}  // namespace

int main(int argc, char** argv) {
  const lessons::Arguments given(argc, argv, "ten [RANKS STEPS RANKS]", 3);
  const auto before = static_cast<int>(given.whole(1, 3, 1, kSamples));
  const auto steps = static_cast<int>(given.whole(2, 2, 0, kSamples));
  const auto after = static_cast<int>(given.whole(3, 2, 1, kSamples));
  std::printf("%d ranks\n", before);
  const SamplerState state = play(before, {}, steps, 0);
  std::printf("saved: epoch %ld, %ld places used; killed; %d ranks\n", long(state.epoch),
              long(state.used), after);
  play(after, state, kSamples, steps);
}
