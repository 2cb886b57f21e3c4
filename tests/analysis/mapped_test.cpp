// Tests which schedules are safe if receivers read directly from the senders' buffers.
#include "runtime/analysis/credits.hpp"
#include "runtime/comm/schedule/ring.hpp"
#include "runtime/comm/schedule/tree.hpp"
#include "tests/comm/built_in.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::comm;
using ringsmith::comm::testing::for_each_built_in;

TEST_CASE("every built-in schedule may read straight from its peers' buffers", "[mapped]") {
  for_each_built_in(
      [](const Schedule& schedule) { REQUIRE(check_credits(schedule).waits.empty()); });
}

TEST_CASE("a buffer that is overwritten while a peer may still read it needs a credit",
          "[mapped]") {
  // Rank 0 sends its chunk to rank 1, and receives a new value of the chunk from rank 2, which does
  // not wait for rank 1. If rank 1 reads from rank 0's buffer, it may see the new value. With slots
  // it cannot.
  Schedule schedule;
  schedule.collective = Collective::all_gather;
  schedule.world = 3;
  schedule.count = 3;
  schedule.chunks = split_evenly(3, 3);
  schedule.steps = {{{1, 0, kNobody, 0, Action::copy}, {kNobody, 0, 2, 0, Action::copy}},
                    {{kNobody, 0, 0, 0, Action::copy}},
                    {{0, 0, kNobody, 0, Action::copy}}};
  auto waits = check_credits(schedule).waits;
  REQUIRE(waits.size() == 1);
  REQUIRE((waits[0].rank == 0 && waits[0].step == 1 && waits[0].chunk == 0));
  REQUIRE((waits[0].reader == 1 && waits[0].reader_step == 0));
  // If rank 2 first waits for a message that rank 1 sends after its read, rank 0 is protected ...
  schedule.steps[1].push_back({2, 1, kNobody, 0, Action::copy});
  schedule.steps[2].insert(schedule.steps[2].begin(), Step{kNobody, 0, 1, 1, Action::copy});
  REQUIRE(check_credits(schedule).waits.empty());
  // ... unless that message is empty, because executors do not send empty messages.
  schedule.chunks = {{0, 1}, {1, 0}, {1, 2}};
  REQUIRE(check_credits(schedule).waits.size() == 1);
}

TEST_CASE("the last readers are reported: the operation must not return before them", "[mapped]") {
  REQUIRE(check_credits(ring_all_reduce(4, 16)).read_after_end.size() == 4);
  REQUIRE(check_credits(ring_all_reduce(1, 16)).read_after_end.empty());
  REQUIRE(check_credits(tree_broadcast(2, 16, 0)).read_after_end == std::vector<int>{0});
}
