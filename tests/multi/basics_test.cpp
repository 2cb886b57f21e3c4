#include <vector>

#include "tests/multi/group.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using ringsmith::test::group;

TEST_CASE("all_reduce, broadcast and barrier over the ranks of the job", "[multi]") {
  ProcessGroup& g = group();
  const int world = g.size();
  for (const std::size_t n : {0, 1, 3, 1000, 1000003}) {
    std::vector<float> x(n);
    for (std::size_t i = 0; i < n; ++i)
      x[i] = static_cast<float>(i % 100) + static_cast<float>(g.rank());
    g.all_reduce(std::span(x));
    for (std::size_t i = 0; i < n; ++i)
      REQUIRE(x[i] == static_cast<float>(i % 100 * world + world * (world - 1) / 2));
    g.barrier();
    const int root = world - 1;
    std::vector<int> y(n, g.rank() == root ? 7 : 0);
    g.broadcast(std::span(y), root);
    REQUIRE(y == std::vector<int>(n, 7));
  }
}
