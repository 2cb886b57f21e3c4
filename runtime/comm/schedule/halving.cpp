#include "runtime/comm/schedule/halving.hpp"

namespace ringsmith::comm {

int halving_core(int world) {
  int p = 1;
  while (p <= world / 2) p *= 2;
  return p;
}

Schedule halving_doubling_all_reduce(int world, std::size_t count) {
  const int p = halving_core(world);
  Schedule schedule =
      empty_schedule(Algorithm::halving_doubling, Collective::all_reduce, world, count, p);
  for (int rank = 0; rank < p; ++rank) {
    const bool folds = p + rank < world;
    if (folds) schedule.add(rank, {kNobody, 0, p + rank, 0, Action::reduce, p});
    // A rank's current range begins at its own number with the undecided low bits cleared.
    for (int half = p / 2; half >= 1; half /= 2) {
      const int partner = rank ^ half;
      schedule.add(rank, {partner, partner & ~(half - 1), partner, rank & ~(half - 1),
                          Action::reduce, half});
    }
    for (int half = 1; half < p; half *= 2) {
      const int partner = rank ^ half;
      schedule.add(
          rank, {partner, rank & ~(half - 1), partner, partner & ~(half - 1), Action::copy, half});
    }
    if (folds) schedule.add(rank, {p + rank, 0, kNobody, 0, Action::copy, p});
  }
  for (int rank = p; rank < world; ++rank) {
    schedule.add(rank, {rank - p, 0, kNobody, 0, Action::copy, p});
    schedule.add(rank, {kNobody, 0, rank - p, 0, Action::copy, p});
  }
  return schedule;
}

}  // namespace ringsmith::comm
