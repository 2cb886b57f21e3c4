// Tests groups of some ranks. The ranks are threads, so that ThreadSanitizer and a debugger see all
// of them. tests/multi tests the collectives.
#include <atomic>
#include <thread>

#include "runtime/base/error.hpp"
#include "runtime/job/threads.hpp"
#include "tests/comm/thread_ranks.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

float sum_of_ones(ProcessGroup& g, std::size_t n) {
  std::vector<float> x(n, 1.0F);
  g.all_reduce(std::span(x));
  return x[n / 2];
}

GroupOptions pairs() {
  GroupOptions options;
  options.transport = Transport::automatic;
  options.ranks_per_node = 2;
  return options;
}

}  // namespace

TEST_CASE("threads as ranks: groups side by side add up their own members", "[group][groups]") {
  for (const GroupOptions& options : {GroupOptions(), pairs()}) {
    const auto sums = run_threads<std::vector<float>>(
        4,
        [](ProcessGroup& g) {
          const auto row = g.split(g.rank() / 2), column = g.split(g.rank() % 2);
          const auto three = g.new_group({3, 0, 2});
          std::vector<float> seen;
          std::thread other([&] {
            for (int i = 0; i < 20; ++i) (void)sum_of_ones(*row, 3000);
          });
          for (int i = 0; i < 20; ++i) seen.push_back(sum_of_ones(*column, 5));
          other.join();
          if (three->rank() >= 0) seen.push_back(sum_of_ones(*three, 70'000));
          seen.push_back(sum_of_ones(g, 70'000));
          return seen;
        },
        options);
    for (std::size_t r = 0; r < 4; ++r) {
      std::vector<float> expected(20, 2.0F);
      if (r != 1) expected.push_back(3.0F);
      expected.push_back(4.0F);
      CHECK(sums[r] == expected);
    }
  }
}

TEST_CASE("ranks of a pretended node share memory, and their groups keep the nodes",
          "[group][groups]") {
  const auto nodes = run_threads<std::vector<int>>(
      4,
      [](ProcessGroup& g) {
        const auto across = g.split(g.rank() % 2), within = g.split(g.rank() / 2);
        std::vector<int> all = g.node_of();
        for (const int node : across->node_of()) all.push_back(node);
        for (const int node : within->node_of()) all.push_back(node);
        all.push_back(static_cast<int>(within->describe_transport().size()));  // number of wires
        all.push_back(g.ranks_on_machine());  // the nodes share the CPUs
        return all;
      },
      pairs());
  const int wires = test_transport() == Transport::tcp ? 1 : 0;
  for (const auto& seen : nodes)
    CHECK(seen == std::vector<int>{0, 0, 1, 1, /* across */ 0, 1, /* within */ 0, 0, wires, 4});
}

TEST_CASE("a wait that fails names its group", "[group][groups]") {
  GroupOptions impatient;
  impatient.timeout = std::chrono::milliseconds(1000);  // also limits the meeting
  std::atomic<bool> told{false};
  const auto said = run_threads<std::string>(
      3,
      [&told](ProcessGroup& g) {
        const auto some = g.new_group({0, 2});
        std::string error = "no error";
        try {
          if (g.rank() == 0) some->barrier();
        } catch (const TimeoutError& e) {
          error = e.what();
        }
        if (g.rank() == 0) told = true;
        for (int i = 0; i < 4000 && !told; ++i)
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        return error;
      },
      impatient);
  CHECK_THAT(said[0], ContainsSubstring("waited 1000 ms for rank 1") &&
                          ContainsSubstring("[in the group of ranks 0, 2]"));
}

TEST_CASE("several nodes and shared memory alone do not go together", "[group][groups]") {
  GroupOptions options = pairs();
  options.transport = Transport::shm;
  CHECK_THROWS_WITH(run_threads<int>(
                        4, [](ProcessGroup&) { return 0; }, options),
                    ContainsSubstring("another node"));
  CHECK_THROWS_WITH(run_threads<int>(
                        2, [](ProcessGroup&) { return 0; }, pairs(),
                        [](GroupOptions& o, int rank) { o.ranks_per_node = 1 + rank; }),
                    ContainsSubstring("GroupOptions::ranks_per_node is 1 on rank 0 and 2 on"));
}

TEST_CASE("a size picks its algorithm, until another one is set", "[group]") {
  // The last bits reveal the order of the additions.
  const auto results = run_threads<int>(4, [](ProcessGroup& g) {
    const auto sum = [&](std::size_t n) {
      std::vector<float> x(n);
      for (std::size_t i = 0; i < n; ++i)
        x[i] = 1.0F / static_cast<float>(1 + g.rank() + static_cast<int>(i % 97));
      g.all_reduce(std::span(x));
      return x;
    };
    std::vector<std::vector<float>> asked;
    for (const auto algorithm : {Algorithm::tree, Algorithm::ring, Algorithm::gloo_ring}) {
      g.set_algorithm(algorithm);
      asked.push_back(sum(100));
      asked.push_back(sum(9000));
      asked.push_back(sum(90'000));
    }
    g.set_algorithms({{Bytes(400), Algorithm::tree}, {Bytes(36'000), Algorithm::ring}});
    bool same = sum(100) == asked[0] && sum(9000) == asked[4] && sum(90'000) == asked[5];
    same = same && asked[0] != asked[3] && asked[4] != asked[7];
    g.set_algorithm(Algorithm::gloo_ring);
    return same && sum(100) == asked[6] ? 1 : 0;
  });
  for (const int right : results) CHECK(right == 1);
}

TEST_CASE("records are packed and taken apart, and what is none is refused", "[bootstrap]") {
  for (const std::vector<std::string>& records :
       {std::vector<std::string>{}, {""}, {"a", "", "3:x"}, {std::string(5000, ':')}})
    CHECK(split_records(join_records(records)) == records);
  for (const char* bad : {"x", "3:ab", "3", ":", "-1:", "99999999999999999999:a", "1:ab"})
    CHECK_THROWS_AS(split_records(bad), CommError);
}
