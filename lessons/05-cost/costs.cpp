// costs: what an all-reduce costs on paper, three ways.
//
//     lesson05_costs RANKS ALPHA BETA GAMMA SIZE...
//
// ALPHA in any unit of time for a message, BETA and GAMMA in the same for each unit of SIZE: that
// of a byte sent, and of a byte added.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "runtime/comm/analysis/cost.hpp"

using namespace ringsmith::comm;

// Rank 0 takes one array after the other, adds it, and then sends the sum to one after the other.
double flat_time(int ranks, double size, Link link, double gamma) {
  return (ranks - 1) * (2 * (link.alpha + size * link.beta) + size * gamma);
}

// A reduce by tree, and a broadcast by the same tree, which adds nothing.
double tree_all_reduce_time(int ranks, double size, Link link, double gamma) {
  return tree_time(ranks, size, link, gamma) + tree_time(ranks, size, link, 0);
}

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "costs: say RANKS ALPHA BETA GAMMA SIZE..., as in 3 5 1 0 6\n");
    return 6;
  }
  const int ranks = std::atoi(argv[1]);
  const Link link{std::atof(argv[2]), std::atof(argv[3])};
  const double gamma = std::atof(argv[4]);
  std::printf("%10s %12s %12s %12s  best\n", "size", "flat", "tree", "ring");
  for (int i = 5; i < argc; ++i) {
    const double size = std::atof(argv[i]);
    const double flat = flat_time(ranks, size, link, gamma);
    const double tree = tree_all_reduce_time(ranks, size, link, gamma);
    const double ring = ring_all_reduce_time(ranks, size, link, gamma);
    const double best = std::min({flat, tree, ring});
    std::printf("%10.0f %12.2f %12.2f %12.2f  %s\n", size, flat, tree, ring,
                best == ring   ? "ring"
                : best == tree ? "tree"
                               : "flat");
  }
}
