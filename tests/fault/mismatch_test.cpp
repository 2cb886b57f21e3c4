// Tests a group after an error, and mistakes that must not cause errors on other ranks.
// wrong_programs_test.cpp tests which error a wrong program gets.
#include "tests/fault/fork_ranks.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

TEST_CASE("after an error the group is broken and every further call throws at once", "[fault]") {
  const auto outcomes = run_ranks(2, {}, [](ProcessGroup& g) {
    std::vector<float> x(g.rank() == 0 ? 3U : 4U);
    CHECK_THROWS_AS(g.all_reduce(std::span(x)), MismatchError);
    CHECK_THROWS_AS(g.barrier(), MismatchError);
    const auto work = g.all_reduce_async(std::span(x), std::span(x), ReduceOp::sum);
    CHECK_THROWS_AS(work->wait(), MismatchError);
    g.barrier();
  });
  for (const Outcome& outcome : outcomes)
    CHECK_THAT(outcome.error, ContainsSubstring("the group has been broken since an earlier call"));
}

TEST_CASE("wrong arguments are a UsageError on the rank that passed them", "[fault]") {
  const auto group = init_process_group();
  std::vector<float> a(4), b(5);
  std::vector<int> i(4);
  CHECK_THROWS_AS(group->all_reduce(std::span(a), std::span(b), ReduceOp::sum), UsageError);
  CHECK_THROWS_AS(group->all_reduce(std::span(a), std::span(i), ReduceOp::sum), UsageError);
  CHECK_THROWS_AS(group->all_reduce(std::span(i), ReduceOp::avg), UsageError);
  CHECK_THROWS_AS(group->all_reduce(std::span(a).first(3), std::span(a).last(3), ReduceOp::sum),
                  UsageError);
  CHECK_THROWS_AS(group->broadcast(std::span(a), 1), UsageError);
  CHECK_THROWS_AS(group->broadcast(std::span(a), -1), UsageError);
  CHECK_THROWS_AS(group->send(std::span(a), 0), UsageError);
  CHECK_NOTHROW(group->barrier());  // the group still works
}
