// Ranks have different numbers of inputs. Compares join() with a loop that sums the active ranks'
// gradients. tests/reference/features_test.cpp compares with PyTorch.
#include "runtime/parallel/join.hpp"

#include <algorithm>

#include "runtime/optim/optimizer.hpp"
#include "tests/parallel/ranks.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

// Divisible by 1, 2, 3 and 4.
float gradient(int rank, int step) { return static_cast<float>(12 * (1 + rank + 10 * step)); }

struct Case {
  std::vector<int> inputs;  // per rank
  bool initial;             // divide_by_initial_world_size
};

// Returns the parameter after all steps, starting from 0 with a learning rate of 1.
float expected(const Case& c) {
  float w = 0;
  for (int step = 0;; ++step) {
    float sum = 0;
    int active = 0;
    for (int r = 0; r < static_cast<int>(c.inputs.size()); ++r)
      if (step < c.inputs[static_cast<std::size_t>(r)]) {
        sum += gradient(r, step);
        ++active;
      }
    if (active == 0) return w;
    w -= sum / static_cast<float>(c.initial ? static_cast<int>(c.inputs.size()) : active);
  }
}

// Makes one step whose gradient is `value` everywhere.
void step(DistributedDataParallel& ddp, const std::vector<Tensor>& parameters, float value) {
  for (const Tensor& p : parameters) p.set_grad({});
  ddp.forward([&] {
       Tensor loss = scalar(0.0);
       for (const Tensor& p : parameters) loss = add(loss, mul(sum(p), value));
       return loss;
     })
      .backward();
}

}  // namespace

TEST_CASE("a rank that has run out counts as zeros, or not at all, and ends with the others") {
  std::vector<Case> cases;
  for (const std::vector<int>& inputs :
       {std::vector<int>{3}, {2, 4}, {4, 0}, {0, 0}, {1, 3, 2}, {0, 5, 5, 1}})
    for (const bool initial : {true, false}) cases.push_back({inputs, initial});
  for (const Case& c : cases) {
    INFO("ranks " << c.inputs.size() << ", first has " << c.inputs[0]
                  << (c.initial ? ", all" : ""));
    const auto got = run_ranks<Values>(static_cast<int>(c.inputs.size()), [&](const Group& group) {
      // Two parameters in two buckets, which are rebuilt after the first step.
      const std::vector<Tensor> w{trained(zeros({3})), trained(zeros({5}))};
      DistributedDataParallel ddp({{"a", w[0]}, {"b", w[1]}}, {}, group,
                                  {.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6});
      SGD optimizer(w, {.lr = 1.0});
      const auto mine = c.inputs[static_cast<std::size_t>(group->rank())];
      Values out;
      for (int epoch = 0; epoch < 2; ++epoch) {  // a join can be repeated
        ddp.join(
            [&] {
              for (int i = 0; i < mine; ++i) {
                step(ddp, w, gradient(group->rank(), i));
                optimizer.step();
              }
            },
            {.divide_by_initial_world_size = c.initial});
        out.push_back(w[0].to_vector<float>());
        out.push_back(w[1].to_vector<float>());
      }
      // After join(), a step must average over all ranks as before.
      step(ddp, w, gradient(group->rank(), 0));
      out.push_back(w[0].grad().to_vector<float>());
      return out;
    });
    const float once = expected(c);
    float average = 0;
    for (int r = 0; r < static_cast<int>(c.inputs.size()); ++r) average += gradient(r, 0);
    average /= static_cast<float>(c.inputs.size());
    for (const Values& v : got) {
      CHECK(v[0] == std::vector<float>(3, once));
      CHECK(v[1] == std::vector<float>(5, once));
      CHECK(v[2] == std::vector<float>(3, 2 * once));
      CHECK(v[3] == std::vector<float>(5, 2 * once));
      CHECK(v[4] == std::vector<float>(3, average));
    }
  }
}

TEST_CASE("the gradients of a rank that has run out are dropped, not sent again") {
  const auto got = run_ranks<Values>(2, [](const Group& group) {
    const std::vector<Tensor> w{trained(zeros({2}))};
    DistributedDataParallel ddp({{"w", w[0]}}, {}, group);
    Values seen;
    ddp.join([&] {
      for (int i = 0; i < 1 + 2 * group->rank(); ++i) {
        step(ddp, w, 12);
        seen.push_back(w[0].grad().to_vector<float>());
      }
    });
    if (w[0].grad().defined() != (group->rank() == 1)) throw Error("gradients after join()");
    return seen;
  });
  CHECK(got[0] == Values{{12, 12}});
  CHECK(got[1] == Values{{12, 12}, {6, 6}, {6, 6}});
}

TEST_CASE("buffers are those of the highest rank with inputs, and in the end of the last joiner") {
  const auto got = run_ranks<Values>(3, [](const Group& group) {
    const int rank = group->rank();
    const std::vector<Tensor> w{trained(zeros({2}))};
    const Tensor buffer = zeros({1});
    DistributedDataParallel ddp({{"w", w[0]}}, {{"statistics", buffer}}, group);
    Values seen;
    ddp.join([&] {
      for (int i = 0; i < std::vector<int>{3, 2, 1}[static_cast<std::size_t>(rank)]; ++i) {
        buffer.fill_(100 * rank + i);
        step(ddp, w, 12);
        seen.push_back(buffer.to_vector<float>());  // as forward received it
      }
      buffer.fill_(1000 + rank);
    });
    seen.push_back(buffer.to_vector<float>());
    return seen;
  });
  CHECK(got[0] == Values{{200}, {101}, {2}, {1000}});
  CHECK(got[1] == Values{{200}, {101}, {1000}});
  CHECK(got[2] == Values{{200}, {1000}});
}

TEST_CASE("forwards under no_sync and under NoGradGuard are not shadowed") {
  const auto got = run_ranks<Values>(2, [](const Group& group) {
    const std::vector<Tensor> w{trained(zeros({2}))};
    DistributedDataParallel ddp({{"w", w[0]}}, {}, group);
    ddp.join([&] {
      for (int i = 0; i < 1 + group->rank(); ++i) {
        w[0].set_grad({});
        const auto backward = [&] { ddp.forward([&] { return sum(mul(w[0], 12.0)); }).backward(); };
        {
          const auto local = ddp.no_sync();
          backward();
          backward();
        }
        if (group->rank() == 1) {
          const NoGradGuard evaluation;
          (void)ddp.forward([&] { return sum(w[0]); });
        }
        backward();
      }
    });
    return Values{w[0].grad().defined() ? w[0].grad().to_vector<float>() : std::vector<float>{}};
  });
  CHECK(got[1] == Values{{18, 18}});  // three times 12, and no contribution from rank 0
}

TEST_CASE("no_sync() on some of the ranks only is an error on all of them") {
  const auto said = run_ranks<std::string>(3, [](const Group& group) {
    const std::vector<Tensor> w{trained(zeros({2}))};
    DistributedDataParallel ddp({{"w", w[0]}}, {}, group);
    return complaint_of([&] {
      ddp.join([&] {
        step(ddp, w, 12);
        if (group->rank() == 1) return;
        if (group->rank() == 2) {
          const auto guard = ddp.no_sync();
          step(ddp, w, 12);
        } else {
          step(ddp, w, 12);
        }
      });
    });
  });
  for (const std::string& each : said)
    CHECK(
        each ==
        "join(): in forward 2 rank 0 would reduce and rank 2 would not: use no_sync() in the same "
        "steps on all ranks");
}

TEST_CASE("throw_on_early_termination ends all ranks with one message, in the same forward") {
  for (const bool uneven : {true, false}) {
    const auto said = run_ranks<std::string>(3, [&](const Group& group) {
      const std::vector<Tensor> w{trained(zeros({2}))};
      DistributedDataParallel ddp({{"w", w[0]}}, {}, group);
      int steps = 0;
      const std::string complaint = complaint_of([&] {
        ddp.join(
            [&] {
              for (int i = 0; i < (uneven && group->rank() == 1 ? 2 : 4); ++i) {
                step(ddp, w, 12);
                ++steps;
              }
            },
            {.throw_on_early_termination = true});
      });
      return complaint + "|" + std::to_string(steps);
    });
    for (const std::string& each : said)
      CHECK(each == (uneven ? "join(): rank 1 ran out of inputs before forward 3 "
                              "(throw_on_early_termination)|2"
                            : "|4"));
  }
}

TEST_CASE("what the body throws comes through, and the wrapper can be used again") {
  const auto group = comm::init_process_group(
      std::make_shared<comm::ThreadBootstrap>(std::make_shared<comm::ThreadRendezvous>(1), 0));
  const std::vector<Tensor> w{trained(zeros({2}))};
  DistributedDataParallel ddp({{"w", w[0]}}, {}, group);
  CHECK(complaint_of([&] { ddp.join([] { throw Error("no more disk"); }); }) == "no more disk");
  step(ddp, w, 3);
  CHECK(w[0].grad().to_vector<float>() == std::vector<float>{3, 3});
  CHECK_THAT(complaint_of([&] {
               ddp.join([&] {
                 for (int i = 0; i < 2; ++i) (void)ddp.forward([&] { return sum(w[0]); });
               });
             }),
             ContainsSubstring("they must alternate"));
}

TEST_CASE("a join() ends with a backward, and is in no other join()") {
  const auto group = comm::init_process_group(
      std::make_shared<comm::ThreadBootstrap>(std::make_shared<comm::ThreadRendezvous>(1), 0));
  const Tensor w = trained(zeros({2}));
  DistributedDataParallel ddp({{"w", w}}, {}, group);
  const auto forward = [&] { (void)ddp.forward([&] { return sum(w); }); };
  CHECK(complaint_of([&] { ddp.join(forward); }) ==
        "join(): it ends with a forward() whose backward() did not run; run it, or evaluate under "
        "NoGradGuard");
  step(ddp, {w}, 3);
  CHECK(complaint_of([&] { ddp.join([&] { ddp.join([] {}); }); }) ==
        "join() inside of join(): leave out the inner one");
  step(ddp, {w}, 3);
  CHECK(w.grad().to_vector<float>() == std::vector<float>{3, 3});
}

TEST_CASE("join works with unused parameters, a static graph and a hook") {
  struct Kind {
    bool find_unused, static_graph, hook;
  };
  for (const Kind& kind : {Kind{true, false, false}, {false, true, false}, {false, false, true}}) {
    INFO(kind.find_unused << kind.static_graph << kind.hook);
    const auto got = run_ranks<Values>(2, [&](const Group& group) {
      // Only rank 0 uses b, and no rank uses c; with a hook, all ranks use both.
      const Tensor a = trained(zeros({2})), b = trained(zeros({3})), c = trained(zeros({4}));
      DistributedDataParallel ddp(
          {{"a", a}, {"b", b}, {"c", c}}, {}, group,
          {.find_unused_parameters = kind.find_unused, .static_graph = kind.static_graph});
      if (kind.hook) ddp.register_comm_hook(allreduce_hook(group));
      Values seen;
      for (int epoch = 0; epoch < 2; ++epoch)
        ddp.join([&] {
          for (int i = 0; i < 2 + 2 * group->rank(); ++i) {
            for (const Tensor& p : {a, b, c}) p.set_grad({});
            ddp.forward([&] {
                 Tensor loss = sum(mul(a, 4.0));
                 if (kind.hook || group->rank() == 0) loss = add(loss, sum(mul(b, 8.0)));
                 if (kind.hook) loss = add(loss, sum(mul(c, 16.0)));
                 return loss;
               })
                .backward();
            seen.push_back({a.grad().to_vector<float>()[0],
                            b.grad().defined() ? b.grad().to_vector<float>()[0] : -1,
                            c.grad().defined() ? c.grad().to_vector<float>()[0] : -1});
          }
        });
      return seen;
    });
    const std::vector<float> both =
        kind.hook ? std::vector<float>{4, 8, 16} : std::vector<float>{4, 4, -1};
    // While only rank 1 is active, no rank uses b, so b keeps its previous gradient: none.
    const std::vector<float> alone =
        kind.hook ? std::vector<float>{2, 4, 8} : std::vector<float>{2, -1, -1};
    CHECK(got[0] == Values{both, both, both, both});
    CHECK(got[1] == Values{both, both, alone, alone, both, both, alone, alone});
  }
}

TEST_CASE("join() divides gradients of 16 bits by the number of ranks that have inputs") {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const auto got = run_ranks<Values>(2, [dtype](const Group& group) {
      const Tensor w = trained(zeros({3}, {dtype}));
      DistributedDataParallel ddp({{"w", w}}, {}, group);
      ddp.join(
          [&] {
            for (int i = 0; i <= group->rank(); ++i) {
              step(ddp, {w}, gradient(group->rank(), i));
              w.detach().copy_(sub(w.detach(), w.grad()));
            }
          },
          {.divide_by_initial_world_size = false});
      return values_of({{"w", w}});
    });
    for (const Values& v : got)
      CHECK(v[0] == std::vector<float>(3, expected({.inputs = {1, 2}, .initial = false})));
  }
}
