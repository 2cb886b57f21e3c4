// Ranks that are not in the same call: every rank gets an error that names both calls.
#include "tests/fault/fork_ranks.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/transport.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

// Rank 2 of three makes another call than ranks 0 and 1, after five that agree.
void check_mismatch(const std::function<void(ProcessGroup&)>& common,
                    const std::function<void(ProcessGroup&)>& odd, const std::string& common_text,
                    const std::string& odd_text) {
  const auto outcomes = run_ranks(3, {}, [&](ProcessGroup& g) {
    std::vector<float> agreed(3000);
    for (int i = 0; i < 5; ++i) g.all_reduce(std::span(agreed));
    if (g.rank() == 2)
      odd(g);
    else
      common(g);
  });
  const std::string text =
      "MismatchError: rank 0 called " + common_text + " #5 but rank 2 called " + odd_text + " #5";
  for (const Outcome& outcome : outcomes) {
    INFO(outcome.error);
    CHECK_THAT(outcome.error, ContainsSubstring(text));
    CHECK(outcome.seconds < 5);
  }
}

auto all_reduce(std::size_t count, ReduceOp op = ReduceOp::sum,
                Algorithm algorithm = Algorithm::automatic) {
  return [=](ProcessGroup& g) {
    g.set_algorithm(algorithm);
    std::vector<float> x(count);
    g.all_reduce(std::span(x), op);
  };
}

}  // namespace

TEST_CASE("another count is a mismatch on every rank", "[fault]") {
  for (const std::size_t count : {10, 100'000})
    check_mismatch(all_reduce(count), all_reduce(count + 1),
                   "all_reduce(sum, f32, " + std::to_string(count) + ")",
                   "all_reduce(sum, f32, " + std::to_string(count + 1) + ")");
}

TEST_CASE("another operation is a mismatch on every rank", "[fault]") {
  check_mismatch(
      all_reduce(1024),
      [](ProcessGroup& g) {
        std::vector<float> in(512), out(512 * 3);
        g.all_gather(std::span(in), std::span(out));
      },
      "all_reduce(sum, f32, 1024)", "all_gather(f32, 512)");
}

TEST_CASE("another reduction is a mismatch on every rank", "[fault]") {
  check_mismatch(all_reduce(7), all_reduce(7, ReduceOp::max), "all_reduce(sum, f32, 7)",
                 "all_reduce(max, f32, 7)");
}

TEST_CASE("another dtype is a mismatch on every rank", "[fault]") {
  check_mismatch(
      all_reduce(7),
      [](ProcessGroup& g) {
        std::vector<std::int32_t> x(7);
        g.all_reduce(std::span(x));
      },
      "all_reduce(sum, f32, 7)", "all_reduce(sum, i32, 7)");
}

TEST_CASE("another root is a mismatch on every rank", "[fault]") {
  const auto broadcast = [](int root) {
    return [root](ProcessGroup& g) {
      std::vector<float> x(50'000);
      g.broadcast(std::span(x), root);
    };
  };
  check_mismatch(broadcast(0), broadcast(1), "broadcast(f32, 50000, root 0)",
                 "broadcast(f32, 50000, root 1)");
}

TEST_CASE("another algorithm is a mismatch on every rank", "[fault]") {
  check_mismatch(all_reduce(9000, ReduceOp::sum, Algorithm::ring),
                 all_reduce(9000, ReduceOp::sum, Algorithm::gloo_ring),
                 "all_reduce(sum, f32, 9000, ring)", "all_reduce(sum, f32, 9000, gloo_ring)");
}

TEST_CASE("a message of another length or type is a mismatch of sender and receiver", "[fault]") {
  const auto outcomes = run_ranks(2, {}, [](ProcessGroup& g) {
    std::vector<float> x(10);
    std::vector<double> y(12);
    if (g.rank() == 0) {
      g.send(std::span(x), 1);
      g.barrier();
    } else {
      g.recv(std::span(y), 0);
    }
  });
  for (const Outcome& outcome : outcomes) {
    INFO(outcome.error);
    CHECK_THAT(outcome.error, ContainsSubstring("MismatchError: rank 1 called recv(f64, 12, from "
                                                "rank 0) but rank 0 called send(f32, 10, to rank "
                                                "1)"));
  }
}

TEST_CASE("a rank that does not come is named when the deadline passes, by all others", "[fault]") {
  GroupOptions options;
  options.timeout = std::chrono::milliseconds(300);
  const auto outcomes = run_ranks(3, options, [](ProcessGroup& g) {
    std::vector<float> x(1000);
    g.barrier();
    if (g.rank() == 1) {
      timespec late{1, 0};
      nanosleep(&late, nullptr);
    }
    g.all_reduce(std::span(x));
    g.barrier();
  });
  for (const std::size_t r : {0, 2}) {
    INFO(outcomes[r].error);
    CHECK_THAT(outcomes[r].error, ContainsSubstring("TimeoutError: waited 300 ms for rank 1"));
    CHECK_THAT(outcomes[r].error,
               ContainsSubstring(test_transport() == Transport::tcp
                                     ? "rank 1 was last heard of in barrier() #0"
                                     : "rank 1 computing, last call barrier() #0"));
    CHECK_THAT(outcomes[r].error, ContainsSubstring("all_reduce(sum, f32, 1000) #1"));
    CHECK(outcomes[r].peer == 1);
    CHECK(outcomes[r].seconds < 0.9);
  }
  // The late one finds everything there; in its next call it learns that the others have given up,
  // instead of waiting for them.
  CHECK_THAT(outcomes[1].error, ContainsSubstring("TimeoutError: waited 300 ms for rank 1"));
}

TEST_CASE("ranks that all send long messages before they receive are named as a circle",
          "[fault]") {
  GroupOptions options;
  options.timeout = std::chrono::milliseconds(200);
  const auto outcomes = run_ranks(3, options, [](ProcessGroup& g) {
    std::vector<float> x(1'000'000);
    g.send(std::span(x), (g.rank() + 1) % 3);
    g.recv(std::span(x), (g.rank() + 2) % 3);
  });
  for (const Outcome& outcome : outcomes) {
    INFO(outcome.error);
    CHECK_THAT(outcome.error, ContainsSubstring("TimeoutError: waited 200 ms for rank "));
    CHECK_THAT(outcome.error,
               ContainsSubstring("They wait in a circle: rank 0 for rank 1 for rank 2 for rank 0, "
                                 "all in send()"));
    CHECK_THAT(outcome.error, ContainsSubstring("one of them must receive before it sends"));
  }
}

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
    CHECK_THAT(outcome.error, ContainsSubstring("the group is broken since an earlier call"));
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
  CHECK_NOTHROW(group->barrier());  // and the group is still whole
}
