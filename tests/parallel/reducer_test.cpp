// The reducer on one rank whose peers are made up (tests/support/fake_group.hpp): what it calls,
// when, and what it makes of the answers. Real ranks: tests/multi/ddp_*_test.cpp.
#include "runtime/parallel/reducer.hpp"

#include "runtime/autograd/engine.hpp"
#include "runtime/autograd/function.hpp"
#include "runtime/parallel/tensor_bytes.hpp"
#include "runtime/tensor/factory.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/fake_group.hpp"

using namespace ringsmith;
using test::FakeGroup;
using Log = std::vector<std::string>;

namespace {

// Parameters p0, p1, ... of 4, 5, 6, ... floats. In use(ids), the gradient of a parameter is
// 10 * (its index + 1), and gradients arrive in the order of ids: that of the inputs of one node.
struct Fixture {
  explicit Fixture(int parameters = 3, ReducerOptions options = small_buckets(), int world = 1,
                   int rank = 0)
      : group(std::make_shared<FakeGroup>(world, rank)) {
    std::vector<std::string> names;
    for (int p = 0; p < parameters; ++p) {
      params.push_back(full({4 + p}, 1.0).requires_grad_());
      names.push_back("p" + std::to_string(p));
    }
    reducer.emplace(names, params, group, options);
    for (int p = 0; p < parameters; ++p)
      register_post_accumulate_grad_hook(params[static_cast<std::size_t>(p)], [this, p](auto&) {
        group->log.push_back("grad " + std::to_string(p));
      });
    group->log.clear();
  }

  static ReducerOptions small_buckets() { return {.caps = {Bytes(1), Bytes(1)}}; }
  static ReducerOptions find_unused() {
    return {.caps = {Bytes(1), Bytes(1)}, .find_unused_parameters = true};
  }

  [[nodiscard]] Tensor use(const std::vector<int>& ids) const {
    std::vector<Tensor> inputs, grads;
    for (const int id : ids) {
      inputs.push_back(params[static_cast<std::size_t>(id)]);
      grads.push_back(full(inputs.back().sizes(), 10.0 * (id + 1)));
    }
    return function("Use", inputs, grads);
  }
  static Tensor function(const char* name, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& grads) {
    Tensor loss = scalar(0.0);
    record(name, inputs, loss, {}, [grads](const Saved&, const Tensor&) { return grads; });
    return loss;
  }
  static Tensor both(const Tensor& a, const Tensor& b) {
    return function("Both", {a, b}, {scalar(1.0), scalar(1.0)});
  }
  void step(const std::vector<int>& ids) {
    reducer->begin_forward();
    const Tensor loss = use(ids);
    reducer->end_forward({loss});
    loss.backward();
  }
  void zero_grad() const {
    for (const Tensor& p : params) p.set_grad({});
  }
  [[nodiscard]] float grad(int p) const {
    const std::vector<float> values = params[static_cast<std::size_t>(p)].grad().to_vector<float>();
    for (const float v : values) CHECK(v == values[0]);
    return values[0];
  }
  // Peers send the same bits as this rank, but rank r lacks the parameter.
  void peer_lacks(int r, int parameter) const {
    group->on_all_gather = [r, parameter](comm::Buffer out) {
      auto* words = reinterpret_cast<std::uint64_t*>(out.data());
      words[2 * r + 1] &= ~(std::uint64_t{1} << parameter);
    };
  }

  std::shared_ptr<FakeGroup> group;
  std::vector<Tensor> params;
  std::optional<Reducer> reducer;
};

}  // namespace

TEST_CASE("an all-reduce starts between gradients, not after the last one") {
  Fixture f;
  f.step({2, 1, 0});
  // One bucket, because the order of the gradients is not known yet; then one for each of them.
  CHECK(f.group->log ==
        Log{"grad 2", "grad 1", "all_reduce(15 f32)", "grad 0", "wait", "all_gather"});
  f.zero_grad();
  f.group->log.clear();
  f.step({2, 1, 0});
  CHECK(f.group->log == Log{"broadcast", "all_reduce(6 f32)", "grad 2", "all_reduce(5 f32)",
                            "grad 1", "all_reduce(4 f32)", "grad 0", "wait", "wait", "wait",
                            "all_gather"});
  CHECK(f.reducer->statistics().buckets.size() == 3);
  CHECK(f.reducer->statistics().buckets[0].launched <= f.reducer->statistics().compute_end);
}

TEST_CASE("buckets start in their own order when gradients come in another") {
  Fixture f;
  f.step({2, 1, 0});
  f.zero_grad();
  f.group->log.clear();
  f.step({0, 1, 2});
  CHECK(f.group->log == Log{"broadcast", "grad 0", "grad 1", "all_reduce(6 f32)",
                            "all_reduce(5 f32)", "all_reduce(4 f32)", "grad 2", "wait", "wait",
                            "wait", "all_gather"});
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

TEST_CASE("gradients are the arena: no second copy, and rebuilding allocates nothing") {
  Fixture f;
  const Bytes before = f.group->allocated;
  f.step({2, 1, 0});
  const auto address = [&](int p) { return data_of(f.params[static_cast<std::size_t>(p)].grad()); };
  CHECK(address(1) - address(0) == 16);
  CHECK(address(2) - address(1) == 20);
  // Rebuilt while gradients exist: they move, and the second backward adds to them.
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
                              "all_reduce(4 f32)", "wait", "wait", "wait", "all_gather"});
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
    // p1 and p2 are known from the graph to be unused: their buckets need not wait for the end.
    CHECK(f.group->log == Log{"all_reduce(6 f32)", "all_reduce(5 f32)", "all_reduce(4 f32)",
                              "grad 0", "wait", "wait", "wait", "all_gather"});
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
  // p1 and p2 had their gradient under no_sync: not missing.
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
