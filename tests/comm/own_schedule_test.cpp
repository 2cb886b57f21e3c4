#include "runtime/analysis/checker.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/own.hpp"
#include "runtime/comm/schedule/ring.hpp"
#include "runtime/comm/schedule/select.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;

namespace {

std::string text_of(const Schedule& schedule) {
  std::string text = "all_reduce world " + std::to_string(schedule.world) + " chunks " +
                     std::to_string(schedule.chunks.size()) + "\n";
  for (std::size_t rank = 0; rank < schedule.steps.size(); ++rank)
    for (const Step& s : schedule.steps[rank])
      text += std::to_string(rank) + " " + std::to_string(s.send_peer) + " " +
              std::to_string(s.send_chunk) + " " + std::to_string(s.recv_peer) + " " +
              std::to_string(s.recv_chunk) + (s.action == Action::reduce ? " reduce\n" : " copy\n");
  return text;
}

}  // namespace

TEST_CASE("a schedule is read as it was written, and proved", "[own]") {
  for (const int world : {1, 2, 3, 5, 8}) {
    const Schedule ring = ring_all_reduce(world, 41);
    const Schedule read = parse_schedule(text_of(ring), 41);
    CHECK(read.steps == ring.steps);
    CHECK(read.chunks == ring.chunks);
    CHECK(check(read).empty());
  }
}

TEST_CASE("what is no schedule is refused with its line", "[own]") {
  const std::string head = "all_reduce world 2 chunks 2\n", step = "0 1 1 1 0 reduce\n";
  const auto refused = [](const std::string& text) {
    try {
      (void)parse_schedule(text, 4);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  CHECK(refused(head + step) == "accepted");
  for (const char* first : {"", "all_reduce\n", "all_gather world 2 chunks 2\n",
                            "all_reduce world 0 chunks 2\n", "all_reduce world 2 chunks 0\n",
                            "all_reduce world 2 chunks 2 more\n", "all_reduce world x chunks 2\n"})
    CHECK_THAT(refused(first + step), ContainsSubstring("line 1"));
  for (const char* last : {"0 1 1 1 0 add\n", "0 1 1 1 0\n", "0 1 1 1 0 copy copy\n", "x\n",
                           "2 1 1 1 0 copy\n", "-1 1 1 1 0 copy\n", "\n"})
    CHECK_THAT(refused(head + step + last), ContainsSubstring("line 3"));
}

TEST_CASE("an own ring runs in place of the built-in one, for worlds of its size", "[own]") {
  Schedule left = empty_schedule(Algorithm::own, Collective::all_reduce, 3, 6, 3);
  for (int rank = 0; rank < 3; ++rank)
    for (int s = 0; s < 4; ++s) left.add(rank, ring_all_reduce_step(3, rank, s, -1));
  REQUIRE(check(left).empty());
  use_as_ring(left);
  const Schedule now = make_schedule(Collective::all_reduce, Algorithm::ring, 3, 100);
  CHECK(now.steps == left.steps);
  CHECK(now.count == 100);
  CHECK(now.chunks == split_evenly(100, 3));
  CHECK(check(now).empty());
  CHECK(make_schedule(Collective::all_reduce, Algorithm::ring, 2, 100).steps ==
        ring_all_reduce(2, 100).steps);
  use_as_ring(ring_all_reduce(4, 8));  // for another world, so the first one remains in use
  CHECK(make_schedule(Collective::all_reduce, Algorithm::ring, 3, 100).steps == left.steps);
  CHECK(make_schedule(Collective::reduce_scatter, Algorithm::ring, 3, 100).steps ==
        ring_reduce_scatter(3, 100).steps);
  use_as_ring(ring_all_reduce(3, 6));  // restores the ring for the tests that follow
}
