#include "runtime/comm/schedule/tree.hpp"

namespace ringsmith::comm {

namespace {

Schedule empty(Collective collective, int world, std::size_t count, int root) {
  check_world(world, root);
  Schedule schedule;
  schedule.algorithm = "tree";
  schedule.collective = collective;
  schedule.world = world;
  schedule.root = root;
  schedule.count = count;
  schedule.chunks = split_evenly(count, 1);
  schedule.steps.resize(static_cast<std::size_t>(world));
  return schedule;
}

// One round: every subtree of 2 * half ranks moves its value between its first rank (the parent)
// and the first rank of its upper half (the child). Ranks are counted from the root.
void add_round(Schedule& schedule, int half, bool towards_root) {
  const int world = schedule.world;
  for (int v = 0; v < world; ++v) {
    const int rank = wrap(schedule.root + v, world);
    const bool parent = v % (2 * half) == 0 && v + half < world;
    const bool child = v % (2 * half) == half;
    Step step;
    if (parent || child) {
      const int partner = wrap(schedule.root + (parent ? v + half : v - half), world);
      if (parent == towards_root) {
        step.recv_peer = partner;
        step.action = towards_root ? Action::reduce : Action::copy;
      } else {
        step.send_peer = partner;
      }
    }
    schedule.steps[static_cast<std::size_t>(rank)].push_back(step);
  }
}

void add_reduce(Schedule& schedule) {
  for (int round = 0; round < tree_rounds(schedule.world); ++round)
    add_round(schedule, 1 << round, true);
}

void add_broadcast(Schedule& schedule) {
  for (int round = tree_rounds(schedule.world) - 1; round >= 0; --round)
    add_round(schedule, 1 << round, false);
}

}  // namespace

int tree_rounds(int world) {
  int rounds = 0;
  while ((std::int64_t{1} << rounds) < world) ++rounds;
  return rounds;
}

Schedule tree_broadcast(int world, std::size_t count, int root) {
  Schedule schedule = empty(Collective::broadcast, world, count, root);
  add_broadcast(schedule);
  return schedule;
}

Schedule tree_reduce(int world, std::size_t count, int root) {
  Schedule schedule = empty(Collective::reduce, world, count, root);
  add_reduce(schedule);
  return schedule;
}

Schedule tree_all_reduce(int world, std::size_t count) {
  Schedule schedule = empty(Collective::all_reduce, world, count, 0);
  add_reduce(schedule);
  add_broadcast(schedule);
  return schedule;
}

}  // namespace ringsmith::comm
