// Static graphs: in every backward, the same parameters get several gradients, or none.
#include "runtime/parallel/static_graph.hpp"

#include "runtime/autograd/checkpoint.hpp"
#include "runtime/nn/gpt.hpp"
#include "runtime/optim/optimizer.hpp"
#include "tests/parallel/ranks.hpp"
#include "tests/parallel/reducer_fixture.hpp"

using namespace ringsmith;
using namespace ringsmith::test;
using Log = std::vector<std::string>;
using Fixture = test::ReducerFixture;

namespace {

ReducerOptions with_static_graph() { return {.caps = {Bytes(1), Bytes(1)}, .static_graph = true}; }

// A loss of p2 and p0 whose backward runs another backward of p1 before it reaches p0. p1 is also
// used directly, so it gets two gradients of 20.
Tensor nested(const Fixture& f) {
  Tensor inner = scalar(0.0);
  record("Reentrant", {f.use({0})}, inner, {}, [&f](const Saved&, const Tensor& g) {
    const EnableGradGuard recording;
    f.use({1}).backward();
    return std::vector<Tensor>{g};
  });
  return Fixture::both(inner, f.use({1, 2}));
}

void step(Fixture& f, const std::function<Tensor()>& loss_of) {
  f.reducer->begin_forward();
  const Tensor loss = loss_of();
  f.reducer->end_forward({loss});
  loss.backward();
}

}  // namespace

TEST_CASE("a second gradient in one backward is an error, unless the graph is static") {
  Fixture f;
  CHECK_THROWS_WITH(step(f, [&] { return nested(f); }),
                    ContainsSubstring("'p1' got two gradients in one backward") &&
                        ContainsSubstring("set static_graph"));
}

TEST_CASE("in a static graph a bucket leaves with the last gradient of its parameters") {
  Fixture f(3, with_static_graph());
  const auto loss = [&] { return nested(f); };
  for (int i = 0; i < 3; ++i) {
    f.zero_grad();
    f.group->log.clear();
    step(f, loss);
    CHECK(f.grad(0) == 10.0F);
    CHECK(f.grad(1) == 40.0F);
    CHECK(f.grad(2) == 30.0F);
    // The first backward counts gradients, and the second records their order. Both reduce the only
    // bucket at the end. The third begins with rebuilt buckets.
    if (i == 0)
      CHECK(f.group->log == Log{"grad 1", "grad 2", "grad 1", "grad 0", "all_reduce(15 f32)",
                                "wait", "all_gather"});
    if (i == 1)
      CHECK(f.group->log == Log{"grad 1", "grad 2", "grad 1", "grad 0", "all_reduce(15 f32)",
                                "wait", "all_gather"});
    if (i == 2)
      CHECK(f.group->log == Log{"broadcast", "grad 1", "grad 2", "all_reduce(6 f32)", "grad 1",
                                "all_reduce(5 f32)", "grad 0", "wait", "wait", "all_reduce(4 f32)",
                                "wait", "all_gather"});
  }
  CHECK(f.reducer->rebuilt());
}

TEST_CASE(
    "in a static graph what the first backward left out is known, and need not be waited for") {
  Fixture f(3, with_static_graph());
  f.group->on_all_gather = [](comm::Buffer out) {  // rank 1 uses p1 and p0
    reinterpret_cast<std::uint64_t*>(out.data())[3] = 3;
  };
  const auto loss = [&] { return f.use({2, 0}); };
  for (int i = 0; i < 3; ++i) {
    f.zero_grad();
    f.group->log.clear();
    step(f, loss);
    CHECK(f.params[1].grad().defined());  // the other ranks' average
  }
  // p1 is first, because it waits for no gradient.
  CHECK(f.reducer->plan().buckets[0].slots[0].parameter == 1);
  CHECK(f.group->log == Log{"broadcast", "grad 2", "all_reduce(5 f32)", "all_reduce(6 f32)",
                            "grad 0", "wait", "wait", "all_reduce(4 f32)", "wait", "all_gather"});
}

TEST_CASE("a graph that changes is an error that says how, on every rank") {
  const auto message = [](const char* name, const char* counts) {
    return ContainsSubstring("static_graph: parameter '" + std::string(name) + "' got " + counts);
  };
  SECTION("one gradient less") {
    Fixture f(3, with_static_graph());
    step(f, [&] { return nested(f); });
    f.zero_grad();
    CHECK_THROWS_WITH(step(f,
                           [&] {
                             return f.use({2, 1, 0});
                           }),
                      message("p1", "1 gradient in backward 2, 2 in the first"));
  }
  SECTION("one more") {
    Fixture f(3, with_static_graph());
    step(f, [&] { return f.use({2, 1, 0}); });
    f.zero_grad();
    CHECK_THROWS_WITH(step(f, [&] { return nested(f); }),
                      message("p1", "2 gradients in backward 2, 1 in the first"));
  }
  SECTION("none any more") {
    Fixture f(3, with_static_graph());
    step(f, [&] { return f.use({2, 1, 0}); });
    f.zero_grad();
    CHECK_THROWS_WITH(step(f,
                           [&] {
                             return f.use({2, 0});
                           }),
                      message("p1", "0 gradients in backward 2, 1 in the first"));
  }
  SECTION("on one rank, and all of them say so") {
    const auto said = run_ranks<std::string>(3, [](const Group& group) {
      const Tensor a = trained(zeros({2})), b = trained(zeros({2}));
      DistributedDataParallel ddp({{"a", a}, {"b", b}}, {}, group, {.static_graph = true});
      return complaint_of([&] {
        for (int i = 0; i < 3; ++i)
          ddp.forward([&] { return i == 2 && group->rank() == 1 ? sum(a) : sum(add(a, b)); })
              .backward();
      });
    });
    for (const std::string& each : said)
      CHECK(each ==
            "on rank 1: static_graph: parameter 'b' got 0 gradients in backward 3, 1 in the "
            "first: use it the same way in every step, or do not set static_graph");
  }
}

TEST_CASE("a static graph whose first passes are under no_sync counts the synchronised one") {
  Fixture f(2, with_static_graph());
  for (int i = 0; i < 3; ++i) {
    f.zero_grad();
    f.reducer->set_synchronising(false);
    step(f, [&] { return f.use({1, 0}); });
    f.reducer->set_synchronising(true);
    step(f, [&] { return f.use({1, 0}); });
    CHECK(f.grad(0) == 20.0F);
    CHECK(f.grad(1) == 40.0F);
  }
}

// ---- activation checkpointing under DistributedDataParallel ----

TEST_CASE("a checkpointed GPT has the same bits under DDP, in buckets, statically, accumulated") {
  const auto train = [](const Group& group, bool checkpointing, bool static_graph, bool tied) {
    Generator start(5);
    GPT model({.vocabulary = 17,
               .context = 8,
               .layers = 2,
               .dim = 8,
               .heads = 2,
               .tied = tied,
               .activation_checkpointing = checkpointing});
    for (const Tensor& p : model.parameters())  // the default generator is shared by all threads
      fill_normal(p.span<float>(), 0, 0.1, start);
    DistributedDataParallel ddp(model, group,
                                {.bucket_cap_mb = 0.001,
                                 .first_bucket_mb = 0.001,
                                 .static_graph = static_graph,
                                 .overlap = Overlap::on});
    AdamW optimizer(model.parameters(), {.lr = 0.01});
    const auto pass = [&](int number) {
      std::vector<std::int64_t> tokens;
      for (int i = 0; i < 16; ++i) tokens.push_back((3 * i * i + 7 * number + group->rank()) % 17);
      const Tensor all = from_vector(tokens, {2, 8});
      const Tensor logits = ddp.forward(all.slice(1, 0, 7).contiguous());
      cross_entropy(reshape(logits, {-1, 17}), reshape(all.slice(1, 1, 8), {-1})).backward();
    };
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      {
        const auto local = ddp.no_sync();
        pass(2 * step);
      }
      pass(2 * step + 1);
      optimizer.step();
    }
    Values out = values_of(model.named_parameters());
    std::vector<float> order;
    for (const int p : ddp.reducer().last_ready_order()) order.push_back(static_cast<float>(p));
    out.push_back(order);
    return out;
  };
  for (const bool tied : {false, true})
    for (const bool static_graph : {false, true}) {
      INFO("tied " << tied << ", static " << static_graph);
      const auto run = [&](bool checkpointing) {
        return run_ranks<Values>(
            3, [&](const Group& g) { return train(g, checkpointing, static_graph, tied); });
      };
      const auto plain = run(false), checkpointed = run(true);
      CHECK(plain[0].size() > 20);
      CHECK(checkpointed == plain);
    }
}
