// Tests the reducer with gradients that are missing, local, late, or from another step.
#include "runtime/parallel/reducer.hpp"
#include "tests/parallel/reducer_fixture.hpp"

using namespace ringsmith;
using Log = std::vector<std::string>;
using Fixture = test::ReducerFixture;

TEST_CASE("a parameter without a gradient is named with its ranks, after all peers were served") {
  SECTION("missing here only") {
    Fixture f(3, Fixture::small_buckets(), 3, 1);
    f.group->on_all_gather = [](comm::Buffer out) {
      auto* words = reinterpret_cast<std::uint64_t*>(out.data());
      words[1] = words[5] = 7;
    };
    CHECK_THROWS_WITH(
        f.step({2, 0}),
        ContainsSubstring("backward pass 1: 1 parameter has no gradient: 'p1' (on rank 1)"));
    CHECK(f.group->log.back() == "all_gather");
    CHECK(f.params[1].grad().defined() == false);
  }
  SECTION("missing on a peer only") {
    Fixture f(3, Fixture::small_buckets(), 3, 1);
    f.peer_lacks(2, 0);
    CHECK_THROWS_WITH(f.step({2, 1, 0}), ContainsSubstring("'p0' (on rank 2)"));
  }
  SECTION("missing everywhere, in a later step, and the reducer can go on") {
    Fixture f(3, Fixture::small_buckets(), 3, 1);
    f.step({2, 1, 0});
    f.zero_grad();
    f.group->log.clear();
    CHECK_THROWS_WITH(f.step({1}),
                      ContainsSubstring("2 parameters have no gradient: 'p0' (on every "
                                        "rank), 'p2' (on every rank)"));
    CHECK(f.group->log == Log{"broadcast", "grad 1", "all_reduce(6 f32)", "all_reduce(5 f32)",
                              "wait", "wait", "all_reduce(4 f32)", "wait", "all_gather"});
    f.zero_grad();
    f.step({2, 1, 0});
    CHECK(f.grad(2) == 30.0F);
  }
  SECTION("more than a screenful is counted") {
    Fixture f(20);
    CHECK_THROWS_WITH(f.step({0}), ContainsSubstring("19 parameters have no gradient") &&
                                       ContainsSubstring("and 11 more"));
  }
}

TEST_CASE("a missing gradient is sent as zeros, not as what lay in the bucket") {
  Fixture f(2);
  f.step({1, 0});
  f.zero_grad();
  f.group->on_all_reduce = [](comm::Buffer data) {
    if (data.count() == Elements(5)) CHECK(*reinterpret_cast<float*>(data.data()) == 0.0F);
  };
  CHECK_THROWS_AS(f.step({0}), UsageError);
}

TEST_CASE("find_unused: unused by all stays untouched, unused here gets the others' average") {
  Fixture f(3, Fixture::find_unused(), 2, 0);
  f.group->on_all_reduce = [](comm::Buffer data) {
    auto* p = reinterpret_cast<float*>(data.data());
    for (std::size_t i = 0; i < data.count().value; ++i) p[i] = p[i] * 0.5F + 1.0F;
  };
  SECTION("no gradient before") {
    f.group->on_all_gather = [](comm::Buffer out) {  // rank 1 used p0 and p1
      reinterpret_cast<std::uint64_t*>(out.data())[3] = 3;
    };
    f.step({0});
    CHECK(f.grad(0) == 6.0F);
    CHECK(f.grad(1) == 1.0F);
    CHECK_FALSE(f.params[2].grad().defined());
    // The graph shows that p1 and p2 are unused: their buckets start at the first gradient.
    CHECK(f.group->log == Log{"grad 0", "all_reduce(6 f32)", "all_reduce(5 f32)", "wait", "wait",
                              "all_reduce(4 f32)", "wait", "all_gather"});
  }
  SECTION("a gradient before, bit for bit") {
    f.step({2, 1, 0});
    f.params[2].grad().fill_(0.1);
    f.step({1, 0});
    CHECK(f.grad(2) == 0.1F);
    CHECK_FALSE(f.reducer->rebuilt());
  }
  SECTION("two forwards, one backward: unreachable means from neither") {
    f.reducer->begin_forward();
    const Tensor a = f.use({2, 1});
    f.reducer->end_forward({a});
    f.reducer->begin_forward();
    const Tensor b = f.use({0});
    f.reducer->end_forward({b});
    Fixture::both(a, b).backward();
    CHECK(f.grad(0) == 6.0F);
    CHECK(f.grad(2) == 16.0F);
  }
  SECTION("a loss that bypasses the outputs is an error, not a wrong gradient") {
    f.reducer->begin_forward();
    const Tensor a = f.use({0});
    f.reducer->end_forward({a});
    CHECK_THROWS_WITH(Fixture::both(a, f.use({1})).backward(),
                      ContainsSubstring("'p1'") && ContainsSubstring("outputs of forward()"));
  }
}

TEST_CASE("without synchronisation gradients stay local, and the next synchronised step has all") {
  Fixture f;
  f.reducer->set_synchronising(false);
  f.step({2, 1, 0});
  CHECK(f.group->log == Log{"grad 2", "grad 1", "grad 0"});
  f.reducer->set_synchronising(true);
  f.group->on_all_reduce = [](comm::Buffer data) {
    CHECK(*reinterpret_cast<float*>(data.data()) == 20.0F);
  };
  // p1 and p2 have gradients from no_sync, so they are not missing.
  f.step({0});
  CHECK(f.grad(0) == 20.0F);
  CHECK(f.grad(1) == 20.0F);
}

TEST_CASE("whether a backward synchronises is decided by its forward") {
  Fixture f;
  f.reducer->set_synchronising(false);
  f.reducer->begin_forward();
  Tensor loss = f.use({2, 1, 0});
  f.reducer->end_forward({loss});
  f.reducer->set_synchronising(true);
  loss.backward();
  CHECK(f.reducer->launched() == 0);

  f.reducer->begin_forward();
  loss = f.use({2, 1, 0});
  f.reducer->end_forward({loss});
  f.reducer->set_synchronising(false);
  loss.backward();
  CHECK(f.reducer->launched() == 1);
}

TEST_CASE("a backward that nothing would average is an error") {
  Fixture f;
  CHECK_THROWS_WITH(f.use({1}).backward(),
                    ContainsSubstring("'p1'") && ContainsSubstring("no_sync"));
  f.reducer->begin_forward();
  const Tensor loss = f.use({2, 1, 0});
  f.reducer->end_forward({loss});
  backward({loss}, {}, true);
  CHECK_THROWS_WITH(backward({loss}), ContainsSubstring("unaveraged"));
}

TEST_CASE("a backward that threw half-way is reported by the next forward") {
  Fixture f;
  const HookHandle hook = register_post_accumulate_grad_hook(
      f.params[1], [](const Tensor&) { throw Error("from a hook"); });
  CHECK_THROWS_WITH(f.step({2, 1, 0}), ContainsSubstring("from a hook"));
  remove_hook(f.params[1], hook);
  CHECK_THROWS_WITH(f.step({2, 1, 0}), ContainsSubstring("did not end"));
}

TEST_CASE("ranks at different steps are told apart") {
  Fixture f(3, Fixture::small_buckets(), 2, 0);
  f.group->on_all_gather = [](comm::Buffer out) {
    reinterpret_cast<std::uint64_t*>(out.data())[2] = 4;
  };
  CHECK_THROWS_WITH(f.step({2, 1, 0}),
                    ContainsSubstring("rank 0 is at its forward 1, rank 1 at its forward 4"));
}
