#include "runtime/comm/schedule/direct.hpp"

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

namespace {

Schedule empty(const char* algorithm, Collective collective, int world, std::size_t count,
               int parts, int root = 0) {
  check_world(world, root);
  Schedule schedule;
  schedule.algorithm = algorithm;
  schedule.collective = collective;
  schedule.world = world;
  schedule.root = root;
  schedule.count = count;
  schedule.chunks = split_evenly(count, parts);
  schedule.steps.resize(static_cast<std::size_t>(world));
  return schedule;
}

Step receive(int peer, int chunk, Action action) { return {kNobody, 0, peer, chunk, action}; }
Step send(int peer, int chunk) { return {peer, chunk, kNobody, 0, Action::copy}; }

// Every rank owns its chunk: it adds up what the others hold of it.
void add_reduce_scatter(Schedule& schedule) {
  const int world = schedule.world;
  for (int rank = 0; rank < world; ++rank)
    for (int s = 0; s < world - 1; ++s) {
      const int to = wrap(rank - 1 - s, world), from = wrap(rank + 1 + s, world);
      schedule.steps[static_cast<std::size_t>(rank)].push_back(
          {to, to, from, rank, Action::reduce});
    }
}

// Every rank hands its chunk to all others.
void add_all_gather(Schedule& schedule) {
  const int world = schedule.world;
  for (int rank = 0; rank < world; ++rank)
    for (int s = 0; s < world - 1; ++s) {
      const int to = wrap(rank - 1 - s, world), from = wrap(rank + 1 + s, world);
      schedule.steps[static_cast<std::size_t>(rank)].push_back(
          {to, rank, from, from, Action::copy});
    }
}

// Step s belongs to root and to the rank root + 1 + s; the others sit it out.
template <class RootStep, class LeafStep>
void add_star(Schedule& schedule, RootStep root_step, LeafStep leaf_step) {
  const int world = schedule.world;
  for (int rank = 0; rank < world; ++rank)
    for (int s = 0; s < world - 1; ++s) {
      const int partner = wrap(schedule.root + 1 + s, world);
      Step step;
      if (rank == schedule.root) step = root_step(partner);
      if (rank == partner) step = leaf_step(partner);
      schedule.steps[static_cast<std::size_t>(rank)].push_back(step);
    }
}

}  // namespace

Schedule one_shot_all_reduce(int world, std::size_t count) {
  Schedule schedule = empty("one_shot", Collective::all_reduce, world, count, 1);
  schedule.separate_input = true;
  for (int rank = 0; rank < world; ++rank) {
    auto& mine = schedule.steps[static_cast<std::size_t>(rank)];
    // All sends come first: they wait for nobody, so every value is under way after one round.
    for (int s = 0; s < world - 1; ++s) mine.push_back(send(wrap(rank - 1 - s, world), 0));
    for (int from = 0; from < world; ++from)
      mine.push_back(receive(from, 0, from == 0 ? Action::copy : Action::reduce));
  }
  return schedule;
}

Schedule direct_all_reduce(int world, std::size_t count) {
  Schedule schedule = empty("direct", Collective::all_reduce, world, count, world);
  add_reduce_scatter(schedule);
  add_all_gather(schedule);
  return schedule;
}

Schedule direct_reduce_scatter(int world, std::size_t count) {
  Schedule schedule = empty("direct", Collective::reduce_scatter, world, count, world);
  add_reduce_scatter(schedule);
  return schedule;
}

Schedule direct_all_gather(int world, std::size_t count) {
  Schedule schedule = empty("direct", Collective::all_gather, world, count, world);
  add_all_gather(schedule);
  return schedule;
}

Schedule direct_broadcast(int world, std::size_t count, int root) {
  Schedule schedule = empty("direct", Collective::broadcast, world, count, 1, root);
  add_star(
      schedule, [](int leaf) { return send(leaf, 0); },
      [root](int) { return receive(root, 0, Action::copy); });
  return schedule;
}

Schedule direct_reduce(int world, std::size_t count, int root) {
  Schedule schedule = empty("direct", Collective::reduce, world, count, 1, root);
  add_star(
      schedule, [](int leaf) { return receive(leaf, 0, Action::reduce); },
      [root](int) { return send(root, 0); });
  return schedule;
}

Schedule direct_gather(int world, std::size_t count, int root) {
  Schedule schedule = empty("direct", Collective::gather, world, count, world, root);
  add_star(
      schedule, [](int leaf) { return receive(leaf, leaf, Action::copy); },
      [root](int leaf) { return send(root, leaf); });
  return schedule;
}

Schedule direct_scatter(int world, std::size_t count, int root) {
  Schedule schedule = empty("direct", Collective::scatter, world, count, world, root);
  add_star(
      schedule, [](int leaf) { return send(leaf, leaf); },
      [root](int leaf) { return receive(root, leaf, Action::copy); });
  return schedule;
}

Schedule direct_all_to_all(int world, std::size_t count) {
  Schedule schedule = empty("direct", Collective::all_to_all, world, count, world);
  require(count % static_cast<std::size_t>(world) == 0,
          "all_to_all of " + std::to_string(count) + " elements over " + std::to_string(world) +
              " ranks: the count must be a multiple of the world");
  schedule.separate_input = true;
  // Step s pairs the ranks whose numbers add up to s: each sends a part, then takes its place.
  for (int rank = 0; rank < world; ++rank)
    for (int s = 0; s < world; ++s) {
      const int partner = wrap(s - rank, world);
      schedule.steps[static_cast<std::size_t>(rank)].push_back(
          partner == rank ? receive(rank, rank, Action::copy)
                          : Step{partner, partner, partner, partner, Action::copy});
    }
  return schedule;
}

}  // namespace ringsmith::comm
