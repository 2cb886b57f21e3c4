// parallel_for must run every index once for any sizes, propagate errors, and not hang if nested.
#include "kernels/parallel.hpp"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using kernels::parallel_for;

namespace {

class ThreadScope {
 public:
  explicit ThreadScope(int n) { kernels::set_threads(n); }
  ~ThreadScope() { kernels::set_threads(1); }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;
};

}  // namespace

TEST_CASE("every index is visited exactly once", "[parallel]") {
  for (const int threads : {1, 2, 3, 5}) {
    const ThreadScope scope(threads);
    for (const std::int64_t n : {0, 1, 2, 7, 64, 1001})
      for (const std::int64_t grain : {1, 2, 63, 10000}) {
        std::vector<std::atomic<int>> visits(static_cast<std::size_t>(n));
        std::atomic<int> pieces{0};
        parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
          ++pieces;
          for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
        });
        for (const auto& v : visits) REQUIRE(v == 1);
        REQUIRE(pieces <= threads);
      }
  }
}

TEST_CASE("an exception in any piece reaches the caller, and the pool stays usable", "[parallel]") {
  const ThreadScope scope(3);
  for (const std::int64_t culprit : {0, 50, 99}) {
    REQUIRE_THROWS_WITH(parallel_for(100, 1,
                                     [&](std::int64_t begin, std::int64_t end) {
                                       if (begin <= culprit && culprit < end)
                                         throw Error("piece " + std::to_string(culprit));
                                     }),
                        ContainsSubstring("piece " + std::to_string(culprit)));
    std::atomic<std::int64_t> sum{0};
    parallel_for(100, 1, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
    REQUIRE(sum == 100);
  }
}

TEST_CASE("a loop within a loop, and loops of several threads at once, all finish", "[parallel]") {
  const ThreadScope scope(2);
  std::atomic<std::int64_t> sum{0};
  const auto nested = [&] {
    parallel_for(8, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        parallel_for(10, 1, [&](std::int64_t b, std::int64_t e) { sum += e - b; });
    });
  };
  std::vector<std::thread> callers;
  for (int t = 0; t < 3; ++t)
    callers.emplace_back([&] {
      for (int k = 0; k < 50; ++k) nested();
    });
  for (std::thread& t : callers) t.join();
  REQUIRE(sum == 3 * 50 * 80);
}
