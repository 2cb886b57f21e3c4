#include "runtime/comm/schedule/halving.hpp"

namespace ringsmith::comm {

int halving_core(int world) {
  int p = 1;
  while (p <= world / 2) p *= 2;
  return p;
}

Schedule halving_doubling_all_reduce(int world, std::size_t count) {
  check_world(world);
  const int p = halving_core(world);
  Schedule schedule;
  schedule.algorithm = "halving_doubling";
  schedule.collective = Collective::all_reduce;
  schedule.world = world;
  schedule.count = count;
  schedule.chunks = split_evenly(count, p);
  schedule.steps.resize(static_cast<std::size_t>(world));
  const auto add = [&](int rank, const Step& step) {
    schedule.steps[static_cast<std::size_t>(rank)].push_back(step);
  };
  for (int rank = 0; rank < p; ++rank) {
    const bool folds = p + rank < world;
    if (folds) add(rank, {kNobody, 0, p + rank, 0, Action::reduce, p});
    // The range that a rank works on begins at its own number without the bits still to be decided.
    for (int half = p / 2; half >= 1; half /= 2) {
      const int partner = rank ^ half;
      add(rank,
          {partner, partner & ~(half - 1), partner, rank & ~(half - 1), Action::reduce, half});
    }
    for (int half = 1; half < p; half *= 2) {
      const int partner = rank ^ half;
      add(rank, {partner, rank & ~(half - 1), partner, partner & ~(half - 1), Action::copy, half});
    }
    if (folds) add(rank, {p + rank, 0, kNobody, 0, Action::copy, p});
  }
  for (int rank = p; rank < world; ++rank) {
    add(rank, {rank - p, 0, kNobody, 0, Action::copy, p});
    add(rank, {kNobody, 0, rank - p, 0, Action::copy, p});
  }
  return schedule;
}

}  // namespace ringsmith::comm
