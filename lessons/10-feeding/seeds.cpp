// seeds: the numbers that N ranks draw, depending on their seeds. One section for each argument:
// masks, dataset, resume. The ranks run one after the other, because a rank's numbers depend on
// its seed alone.
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/autograd/functions.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/data/sampler.hpp"
#include "runtime/tensor/tensor.hpp"

using namespace ringsmith;
using Mask = std::vector<float>;

namespace {

// Draws a mask of 16 activations, in which dropped activations are 0.
Mask draw_mask() { return dropout(ones({16}), 0.5, true).to_vector<float>(); }

// Eight ranks drop half of 16 activations in one step.
void masks() {
  std::printf("%-18s %7s   %s\n", "8 ranks", "masks", "activations that no rank keeps");
  for (const bool own : {false, true}) {
    std::set<Mask> different;
    Mask kept(16);
    for (std::uint64_t rank = 0; rank < 8; ++rank) {
      manual_seed(42 + (own ? rank : 0));
      const Mask mask = draw_mask();
      different.insert(mask);
      for (std::size_t i = 0; i < kept.size(); ++i) kept[i] += mask[i];
    }
    int lost = 0;
    for (const float k : kept) lost += k == 0 ? 1 : 0;
    std::printf("%-18s %7zu   %d of 16\n", own ? "seed + rank" : "the same seed", different.size(),
                lost);
  }
}

// Four ranks draw their data sets themselves and divide them among each other in three epochs. A
// sample is a 64-bit number; equal numbers are the same sample.
void dataset() {
  constexpr int kRanks = 4, kSamples = 1000;
  std::printf("%-28s %10s %18s\n", "3000 samples used", "data sets", "different samples");
  enum class Draw { one_seed, own_seed, at_each_use };
  for (const auto& [name, draw] : {std::pair{"drawn from one seed", Draw::one_seed},
                                   {"drawn by each rank", Draw::own_seed},
                                   {"drawn anew at each use", Draw::at_each_use}}) {
    std::set<std::vector<std::uint64_t>> sets;
    std::set<std::uint64_t> used;
    for (int rank = 0; rank < kRanks; ++rank) {
      Generator random(draw == Draw::one_seed ? 1U : 1U + static_cast<unsigned>(rank));
      std::vector<std::uint64_t> samples(kSamples);
      for (std::uint64_t& sample : samples) sample = random.random64();
      sets.insert(samples);
      DistributedSampler sampler(kSamples, {.replicas = kRanks, .rank = rank});
      for (int epoch = 0; epoch < 3; ++epoch) {
        sampler.set_epoch(epoch);
        for (const std::int64_t i : sampler.indices())
          used.insert(draw == Draw::at_each_use ? random.random64()
                                                : samples[static_cast<std::size_t>(i)]);
      }
    }
    const std::string count = draw == Draw::at_each_use ? "none" : std::to_string(sets.size());
    std::printf("%-28s %10s %18zu\n", name, count.c_str(), used.size());
  }
}

// Four ranks draw masks for three steps, save their random states, and draw one more mask; then a
// new job loads the saved states and draws that mask again.
void resume() {
  std::vector<std::string> saved;
  std::vector<Mask> expected;
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    manual_seed(42 + rank);
    for (int step = 0; step < 3; ++step) (void)draw_mask();
    saved.push_back(default_generator().state());
    expected.push_back(draw_mask());
  }
  std::printf("%-22s %16s   %s\n", "4 ranks, resumed with", "different masks",
              "ranks that continue as without the stop");
  for (const bool own : {false, true}) {
    std::set<Mask> different;
    int right = 0;
    for (std::size_t rank = 0; rank < 4; ++rank) {
      default_generator().set_state(saved[own ? rank : 0]);
      const Mask mask = draw_mask();
      different.insert(mask);
      right += mask == expected[rank] ? 1 : 0;
    }
    std::printf("%-22s %16zu   %d\n", own ? "each rank's state" : "rank 0's state",
                different.size(), right);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::pair<const char*, void (*)()> sections[] = {
      {"masks", masks}, {"dataset", dataset}, {"resume", resume}};
  for (const auto& [name, run] : sections)
    if (argc == 2 && std::strcmp(argv[1], name) == 0) return run(), 0;
  std::fprintf(stderr, "seeds masks | dataset | resume\n");
  return 2;
}
