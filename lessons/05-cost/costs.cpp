// costs: the cost of an all-reduce on paper, for four algorithms.
//
//     lesson05_costs RANKS ALPHA BETA GAMMA SIZE...
//
// ALPHA: time per message, in any unit. BETA and GAMMA: time per unit of SIZE sent, and per unit
// added, in the same unit of time.
#include <algorithm>
#include <cstdio>

#include "lessons/arguments.hpp"
#include "runtime/analysis/cost.hpp"
#include "runtime/comm/schedule/halving.hpp"
#include "runtime/comm/schedule/tree.hpp"

using namespace ringsmith::comm;

// Rank 0 receives and adds one array after the other, and then sends the sum to each rank in
// turn.
double flat_time(int ranks, double size, Link link, double gamma) {
  return (ranks - 1) * (2 * (link.alpha + size * link.beta) + size * gamma);
}

// A reduce by tree, and a broadcast by the same tree, which adds nothing.
double tree_all_reduce_time(int ranks, double size, Link link, double gamma) {
  return tree_time(ranks, size, link, gamma) + tree_time(ranks, size, link, 0);
}

// In each round, partners at half the previous distance exchange half of the data that they still
// have; then the rounds run backwards. The ranks beyond a power of two first send their whole
// array to a partner, and receive the sum at the end.
double halving_all_reduce_time(int ranks, double size, Link link, double gamma) {
  const int core = halving_core(ranks);
  const double share = (core - 1.0) / core, rounds = tree_rounds(core);
  const double inside = 2 * (rounds * link.alpha + share * size * link.beta) + share * size * gamma;
  return inside + (core < ranks ? 2 * (link.alpha + size * link.beta) + size * gamma : 0);
}

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "costs: say RANKS ALPHA BETA GAMMA SIZE..., as in 3 5 1 0 6\n");
    return 6;
  }
  constexpr double kMost = 1e15;
  const ringsmith::lessons::Arguments given(argc, argv, "costs RANKS ALPHA BETA GAMMA SIZE...",
                                            argc);
  const int ranks = static_cast<int>(given.whole(1, 0, 1, 1'000'000));
  const Link link{given.real(2, 0, 0, kMost), given.real(3, 0, 0, kMost)};
  const double gamma = given.real(4, 0, 0, kMost);
  std::printf("%10s %12s %12s %12s %12s  best\n", "size", "flat", "tree", "ring", "halving");
  for (int i = 5; i < argc; ++i) {
    const double size = given.real(i, 0, 0, kMost);
    const double flat = flat_time(ranks, size, link, gamma);
    const double tree = tree_all_reduce_time(ranks, size, link, gamma);
    const double ring = ring_all_reduce_time(ranks, size, link, gamma);
    const double halving = halving_all_reduce_time(ranks, size, link, gamma);
    const double best = std::min({flat, tree, ring, halving});
    std::printf("%10.0f %12.2f %12.2f %12.2f %12.2f  %s\n", size, flat, tree, ring, halving,
                best == ring      ? "ring"
                : best == halving ? "halving"
                : best == tree    ? "tree"
                                  : "flat");
  }
}
