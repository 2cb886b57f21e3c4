// Tests the properties that merging must preserve, and schedules that the direct engine refuses.
#include <numeric>

#include "runtime/base/error.hpp"
#include "runtime/comm/executor/executors.hpp"
#include "runtime/comm/schedule/halving.hpp"
#include "runtime/comm/schedule/hierarchical.hpp"
#include "runtime/comm/schedule/select.hpp"
#include "runtime/comm/schedule/tree.hpp"
#include "runtime/comm/transport/layout.hpp"
#include "tests/comm/built_in.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;

namespace {

std::size_t messages(const std::vector<Plan>& plans) {
  std::size_t n = 0;
  for (const Plan& plan : plans)
    for (const Move& move : plan) n += move.sends.size();
  return n;
}

std::vector<int> chunks_of(const Plan& plan, int peer, bool sends) {
  std::vector<int> chunks;
  for (const Move& move : plan) {
    if (sends) {
      for (const int to : move.sends)
        if (to == peer) chunks.push_back(move.chunk);
      continue;
    }
    for (const Source& s : move.sources)
      if (s.kind == Source::Kind::message && s.peer == peer) chunks.push_back(move.chunk);
  }
  return chunks;
}

std::vector<int> chunks_of(const std::vector<Step>& steps, int peer, bool sends) {
  std::vector<int> chunks;
  for (const Step& step : steps) {
    for (int i = 0; i < step.chunks; ++i) {
      if (sends && step.send_peer == peer) chunks.push_back(step.send_chunk + i);
      if (!sends && step.recv_peer == peer) chunks.push_back(step.recv_chunk + i);
    }
  }
  return chunks;
}

}  // namespace

TEST_CASE("a two-shot is one sum and its pushes: nothing is read twice or stored in between",
          "[plan]") {
  const auto schedule = make_schedule(Collective::all_reduce, Algorithm::direct, 3, 30);
  const Plan plan = make_plans(schedule)[0];
  std::size_t sums = 0;
  for (const Move& move : plan)
    if (move.sources.size() > 1) {
      ++sums;
      CHECK(move.sources.size() == 3);
      CHECK(move.sources[0].kind == Source::Kind::input);
      CHECK(move.sources[1].peer == 1);
      CHECK(move.sources[2].peer == 2);
      CHECK(move.sends.size() == 2);
      CHECK(move.keep);
    }
  CHECK(sums == 1);
  const auto mappings = make_mappings(schedule, make_plans(schedule), Placement::in_place);
  REQUIRE(mappings.has_value());
  std::size_t passes = 0;
  for (const MappedMove& move : (*mappings)[0].moves)
    if (!move.destinations.empty()) {
      ++passes;
      CHECK(move.sources.size() == 3);
      CHECK(move.destinations.size() == 3);
      CHECK(move.after.empty());
    }
  CHECK(passes == 1);
  CHECK((*mappings)[0].finally.size() == 2);
}

TEST_CASE("a ring stores only its own chunk in the reduce-scatter phase", "[plan]") {
  const auto schedule = make_schedule(Collective::reduce_scatter, Algorithm::ring, 5, 50);
  const auto plans = make_plans(schedule);
  for (const Plan& plan : plans) {
    std::size_t kept = 0;
    for (const Move& move : plan) kept += move.keep ? 1 : 0;
    CHECK(kept == 1);
  }
}

TEST_CASE("plans move as many messages as their schedules, zero-length chunks excepted", "[plan]") {
  for (const Collective collective : all_collectives())
    for (const Algorithm algorithm : algorithms_of(collective))
      for (int world = 1; world <= 8; ++world)
        for (const std::size_t n : {0, 1, 2, 7, 16}) {
          const std::size_t count =
              collective == Collective::all_to_all ? n * static_cast<std::size_t>(world) : n;
          const auto schedule = make_schedule(collective, algorithm, world, count, 4, world - 1);
          std::size_t sends = 0;
          for (const auto& steps : schedule.steps)
            for (const Step& step : steps)
              for (int i = 0; i < step.chunks; ++i)
                sends +=
                    step.sends() && message_count(schedule, step.send_chunk + i, 1) > 0 ? 1 : 0;
          INFO(name_of(algorithm) << " world " << world << " count " << count);
          const auto plans = make_plans(schedule);
          CHECK(messages(plans) == sends);
        }
}

TEST_CASE("merging keeps the order of messages between any two ranks", "[plan]") {
  for (const Collective collective : all_collectives())
    for (const Algorithm algorithm : algorithms_of(collective)) {
      const auto schedule = make_schedule(collective, algorithm, 5, 100, 4, 2);
      const auto plans = make_plans(schedule);
      for (std::size_t rank = 0; rank < 5; ++rank)
        for (int peer = 0; peer < 5; ++peer)
          for (const bool sends : {false, true}) {
            if (peer == static_cast<int>(rank)) continue;
            INFO(name_of(algorithm) << " rank " << rank << " peer " << peer);
            CHECK(chunks_of(plans[rank], peer, sends) ==
                  chunks_of(schedule.steps[rank], peer, sends));
          }
    }
}

TEST_CASE("an exchange in place has no mapping: each would overwrite what the other reads",
          "[plan]") {
  const auto schedule = make_schedule(Collective::all_to_all, Algorithm::direct, 2, 10);
  CHECK(!make_mappings(schedule, make_plans(schedule), Placement::in_place).has_value());
  CHECK(make_mappings(schedule, make_plans(schedule), Placement::apart).has_value());
}

TEST_CASE("every all_reduce that ships can run directly between ranks, in place and not",
          "[plan]") {
  for (const Algorithm algorithm :
       {Algorithm::ring, Algorithm::gloo_ring, Algorithm::direct, Algorithm::tree,
        Algorithm::halving_doubling, Algorithm::double_tree, Algorithm::hierarchical})
    for (int world = 1; world <= 8; ++world)
      for (const auto placement : {Placement::apart, Placement::in_place}) {
        INFO(name_of(algorithm) << " world " << world);
        const auto schedule =
            make_schedule(Collective::all_reduce, algorithm, world, 100, 4, 0, nodes_of(world, 2));
        CHECK(make_mappings(schedule, make_plans(schedule), placement).has_value());
      }
}

TEST_CASE("with staging for every chunk, everything that ships runs directly between ranks",
          "[plan]") {
  comm::testing::for_each_built_in([](const Schedule& schedule) {
    INFO(name_of(schedule.collective)
         << " " << name_of(schedule.algorithm) << " world " << schedule.world);
    REQUIRE(make_mappings(schedule, make_plans(schedule), Placement::staged).has_value());
  });
}

namespace {

// Returns true if all ranks finish with this number of slots per connection. Every rank runs its
// plan once per slice.
bool finishes(const std::vector<Plan>& plans, std::size_t slots, std::size_t slices) {
  const std::size_t world = plans.size();
  std::vector<std::size_t> done(world, 0), waiting(world * world, 0);  // [from * world + to]
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < world; ++r)
      while (done[r] < slices * plans[r].size()) {
        const Move& move = plans[r][done[r] % plans[r].size()];
        const auto has_message = [&](const Source& s) {
          return s.kind != Source::Kind::message ||
                 waiting[static_cast<std::size_t>(s.peer) * world + r] > 0;
        };
        const auto has_room = [&](int to) {
          return waiting[r * world + static_cast<std::size_t>(to)] < slots;
        };
        if (!std::all_of(move.sources.begin(), move.sources.end(), has_message) ||
            !std::all_of(move.sends.begin(), move.sends.end(), has_room))
          break;
        for (const Source& s : move.sources)
          if (s.kind == Source::Kind::message)
            --waiting[static_cast<std::size_t>(s.peer) * world + r];
        for (const int to : move.sends) ++waiting[r * world + static_cast<std::size_t>(to)];
        ++done[r];
        moved = true;
      }
  }
  for (std::size_t r = 0; r < world; ++r)
    if (done[r] < slices * plans[r].size()) return false;
  return true;
}

}  // namespace

TEST_CASE("plans finish with the slots that a lane has, slice after slice", "[plan]") {
  comm::testing::for_each_built_in([](const Schedule& schedule) {
    INFO(name_of(schedule.collective) << " " << name_of(schedule.algorithm) << " world "
                                      << schedule.world << " count " << schedule.count);
    REQUIRE(finishes(make_plans(schedule), kSlots, 3));
  });
  std::vector<Schedule> large;
  for (const int world : {4, 5, 8, 13, 16}) {
    for (const int pieces : {8, 16}) large.push_back(double_tree_all_reduce(world, 400, pieces));
    for (const int per_node : {1, 2, 4})
      large.push_back(hierarchical_all_reduce(world, 400, nodes_of(world, per_node)));
    large.push_back(halving_doubling_all_reduce(world, 400));
    large.push_back(make_schedule(Collective::all_reduce, Algorithm::direct, world, 400));
  }
  large.push_back(hierarchical_all_reduce(48, 4000, nodes_of(48, 4)));
  for (const Schedule& schedule : large) {
    INFO(name_of(schedule.algorithm)
         << " world " << schedule.world << " chunks " << schedule.chunks.size());
    CHECK(finishes(make_plans(schedule), kSlots, 3));
  }
}

TEST_CASE("a schedule whose messages do not pair up is refused by name", "[plan]") {
  auto schedule = make_schedule(Collective::all_reduce, Algorithm::ring, 3, 30);
  schedule.steps[1].pop_back();
  CHECK_THROWS_WITH(make_plans(schedule), ContainsSubstring("ring: rank"));
}
