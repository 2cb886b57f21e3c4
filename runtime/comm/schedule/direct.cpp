#include "runtime/comm/schedule/direct.hpp"

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

namespace {

Step receive(int peer, int chunk, Action action) { return {kNobody, 0, peer, chunk, action}; }
Step send(int peer, int chunk) { return {peer, chunk, kNobody, 0, Action::copy}; }

// Every rank adds the other ranks' copies of its chunk to its own (reduce), or sends its chunk to
// all of them (copy).
void add_rotation(Schedule& schedule, Action action) {
  const int world = schedule.world;
  for (int rank = 0; rank < world; ++rank)
    for (int s = 0; s < world - 1; ++s) {
      const int to = wrap(rank - 1 - s, world), from = wrap(rank + 1 + s, world);
      schedule.add(rank, action == Action::reduce ? Step{to, to, from, rank, action}
                                                  : Step{to, rank, from, from, action});
    }
}

// In step s, only the root and rank root + 1 + s communicate.
void add_star(Schedule& schedule, const Contract& contract) {
  const int world = schedule.world;
  const bool from_root = contract.input == Extent::at_root;
  for (int rank = 0; rank < world; ++rank)
    for (int s = 0; s < world - 1; ++s) {
      const int leaf = wrap(schedule.root + 1 + s, world);
      const int chunk = contract.divides() ? leaf : 0;
      const int sender = from_root ? schedule.root : leaf,
                receiver = from_root ? leaf : schedule.root;
      Step step;
      if (rank == sender) step = send(receiver, chunk);
      if (rank == receiver)
        step = receive(sender, chunk, contract.reduces ? Action::reduce : Action::copy);
      schedule.add(rank, step);
    }
}

// In step s, two ranks exchange parts if their numbers add up to s (modulo world).
void add_exchange(Schedule& schedule) {
  const int world = schedule.world;
  require(schedule.count % static_cast<std::size_t>(world) == 0,
          "all_to_all of " + std::to_string(schedule.count) + " elements over " +
              std::to_string(world) + " ranks: the count must be a multiple of the world");
  schedule.separate_input = true;
  for (int rank = 0; rank < world; ++rank)
    for (int s = 0; s < world; ++s) {
      const int partner = wrap(s - rank, world);
      schedule.add(rank, partner == rank ? receive(rank, rank, Action::copy)
                                         : Step{partner, partner, partner, partner, Action::copy});
    }
}

}  // namespace

Schedule one_shot_all_reduce(int world, std::size_t count) {
  Schedule schedule = empty_schedule(Algorithm::one_shot, Collective::all_reduce, world, count, 1);
  schedule.separate_input = true;
  for (int rank = 0; rank < world; ++rank) {
    // The sends precede all receives. They do not wait for receivers, so every value is in flight
    // after one round.
    for (int s = 0; s < world - 1; ++s) schedule.add(rank, send(wrap(rank - 1 - s, world), 0));
    for (int from = 0; from < world; ++from)
      schedule.add(rank, receive(from, 0, from == 0 ? Action::copy : Action::reduce));
  }
  return schedule;
}

Schedule direct_schedule(Collective collective, int world, std::size_t count, int root) {
  const Contract contract = contract_of(collective);
  const bool one_chunk = contract.rooted() && !contract.divides();
  Schedule schedule =
      empty_schedule(Algorithm::direct, collective, world, count, one_chunk ? 1 : world, root);
  if (contract.rooted()) {
    add_star(schedule, contract);
  } else if (contract.exchanges) {
    add_exchange(schedule);
  } else {
    if (contract.reduces) add_rotation(schedule, Action::reduce);
    if (contract.output == Extent::all) add_rotation(schedule, Action::copy);
  }
  return schedule;
}

}  // namespace ringsmith::comm
