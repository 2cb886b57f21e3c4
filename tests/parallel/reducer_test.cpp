// Tests the reducer's calls, their order, and the addresses of gradients.
// tests/multi/ddp_*_test.cpp use real ranks.
#include "runtime/parallel/reducer.hpp"

#include "tests/parallel/reducer_fixture.hpp"

using namespace ringsmith;
using Log = std::vector<std::string>;
using Fixture = test::ReducerFixture;

TEST_CASE("an all-reduce starts between gradients, not after the last one") {
  Fixture f;
  f.step({2, 1, 0});
  // The first backward uses one bucket, because the order of the gradients is still unknown; later
  // backwards use a bucket per gradient. The calling thread reduces the last bucket, because no
  // computation is left to overlap.
  CHECK(f.group->log ==
        Log{"grad 2", "grad 1", "grad 0", "all_reduce(15 f32)", "wait", "all_gather"});
  f.zero_grad();
  f.group->log.clear();
  f.step({2, 1, 0});
  CHECK(f.group->log == Log{"broadcast", "grad 2", "all_reduce(6 f32)", "grad 1",
                            "all_reduce(5 f32)", "grad 0", "wait", "wait", "all_reduce(4 f32)",
                            "wait", "all_gather"});
  CHECK(f.reducer->statistics().buckets.size() == 3);
  CHECK(f.reducer->statistics().buckets[0].launched <= f.reducer->statistics().compute_end);
}

TEST_CASE("buckets start in their own order when gradients come in another") {
  Fixture f;
  f.step({2, 1, 0});
  f.zero_grad();
  f.group->log.clear();
  f.step({0, 1, 2});
  CHECK(f.group->log == Log{"broadcast", "grad 0", "grad 1", "grad 2", "all_reduce(6 f32)",
                            "all_reduce(5 f32)", "wait", "wait", "all_reduce(4 f32)", "wait",
                            "all_gather"});
}

TEST_CASE("the rebuild takes rank 0's order, not this rank's") {
  Fixture f(3, Fixture::small_buckets(), 2, 1);
  f.group->on_broadcast = [](comm::Buffer order) {
    auto* p = reinterpret_cast<std::int32_t*>(order.data());
    CHECK(std::vector<int>(p, p + 3) == std::vector<int>{2, 1, 0});
    p[0] = 1, p[1] = 0, p[2] = 2;
  };
  f.step({2, 1, 0});
  f.step({2, 1, 0});
  const auto& buckets = f.reducer->plan().buckets;
  REQUIRE(buckets.size() == 3);
  CHECK(buckets[0].slots[0].parameter == 1);
  CHECK(buckets[1].slots[0].parameter == 0);
  CHECK(buckets[2].slots[0].parameter == 2);
}

TEST_CASE("given the order of an earlier run, a reducer has its buckets from the first step on") {
  Fixture before;
  CHECK(before.reducer->ready_order().empty());
  before.step({1, 2, 0});
  const std::vector<int> order = before.reducer->ready_order();
  CHECK(order == std::vector<int>{1, 2, 0});
  before.zero_grad();
  before.group->log.clear();
  before.step({0, 1, 2});
  CHECK(before.reducer->ready_order() == order);
  Fixture after;
  CHECK_THROWS_AS(after.reducer->rebuild_in({1, 1, 0}), UsageError);
  CHECK_THROWS_AS(after.reducer->rebuild_in({1, 0}), UsageError);
  after.reducer->rebuild_in(order);
  after.step({0, 1, 2});
  // Only `before` broadcasts the order; `after` was given it.
  REQUIRE(before.group->log.front() == "broadcast");
  before.group->log.erase(before.group->log.begin());
  CHECK(after.group->log == before.group->log);
  CHECK(after.reducer->ready_order() == order);
  after.step({0, 1, 2});
  CHECK(after.reducer->ready_order() == order);
  Fixture never(3, Fixture::find_unused());
  never.step({1, 2, 0});
  CHECK(never.reducer->ready_order().empty());
}

TEST_CASE("gradients are the arena: no second copy, and rebuilding allocates nothing") {
  Fixture f;
  const Bytes before = f.group->allocated;
  f.step({2, 1, 0});
  const auto address = [&](int p) { return data_of(f.params[static_cast<std::size_t>(p)].grad()); };
  CHECK(address(1) - address(0) == 16);
  CHECK(address(2) - address(1) == 20);
  // Rebuilding moves the existing gradients, and the second backward adds to them.
  f.step({2, 1, 0});
  CHECK(address(1) - address(2) == 64);
  CHECK(address(0) - address(1) == 64);
  CHECK(f.grad(0) == 20.0F);
  CHECK(f.grad(1) == 40.0F);
  CHECK(f.grad(2) == 60.0F);
  CHECK(f.group->allocated == before);
  CHECK(f.reducer->communication_memory() <= Bytes(15 * 4 + 3 * 64));
}

TEST_CASE("gradients that change places within the arena do not overwrite each other") {
  Fixture f(3, {});
  f.step({2, 1, 0});
  f.step({2, 1, 0});
  CHECK(f.reducer->rebuilt());
  CHECK(data_of(f.params[2].grad()) < data_of(f.params[0].grad()));
  for (int p = 0; p < 3; ++p) CHECK(f.grad(p) == 20.0F * static_cast<float>(p + 1));
}

TEST_CASE("a gradient that the program replaced is taken into the bucket") {
  Fixture f;
  f.step({2, 1, 0});
  for (const char* when : {"while the buckets are rebuilt", "later"}) {
    INFO(when);
    f.params[1].set_grad(full({5}, 7.0));
    f.group->on_all_reduce = [](comm::Buffer data) {
      if (data.count() == Elements(5)) CHECK(*reinterpret_cast<float*>(data.data()) == 27.0F);
    };
    f.step({0, 1, 2});
    CHECK(f.params[1].grad().storage() == f.params[0].grad().storage());
    CHECK(f.grad(1) == 27.0F);
  }
}

TEST_CASE("a parameter used twice is one gradient, one launch") {
  Fixture f;
  f.step({2, 1, 0});
  f.zero_grad();
  f.group->log.clear();
  f.step({2, 1, 0, 1});
  CHECK(f.grad(1) == 40.0F);
  CHECK(std::count(f.group->log.begin(), f.group->log.end(), "all_reduce(5 f32)") == 1);
}

TEST_CASE("gradients outlive the reducer, and its hooks do not") {
  Fixture f;
  f.step({2, 1, 0});
  f.reducer.reset();
  CHECK(f.grad(1) == 20.0F);
  f.use({1}).backward();
  CHECK(f.grad(1) == 40.0F);
  f.zero_grad();
  f.use({1}).backward();
  CHECK(f.grad(1) == 20.0F);
}

TEST_CASE("a rank that is alone reduces nothing, and still notices a missing gradient") {
  Fixture f(3, Fixture::small_buckets(), 1);
  f.step({2, 1, 0});
  CHECK(f.grad(2) == 30.0F);
  CHECK(std::count(f.group->log.begin(), f.group->log.end(), "wait") == 0);
  CHECK_THROWS_WITH(f.step({1}), ContainsSubstring("'p0' (on rank 0)"));
}
