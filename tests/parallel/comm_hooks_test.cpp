// Tests the order of communication hooks' calls, their inputs, and the use of their results.
// tests/reference/features_test.cpp compares whole runs with PyTorch's.
#include "runtime/parallel/comm_hooks.hpp"

#include <cmath>

#include "kernels/half.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/beyond/post_local_sgd.hpp"
#include "runtime/parallel/beyond/power_sgd.hpp"
#include "tests/parallel/ranks.hpp"
#include "tests/parallel/reducer_fixture.hpp"

using namespace ringsmith;
using namespace ringsmith::test;
using Log = std::vector<std::string>;
using Fixture = test::ReducerFixture;

namespace {

// Returns the toy's gradients, which are whole numbers.
Values gradients(const Group& group, const CommHook& hook, int steps = 2) {
  const Toy toy = mlp_toy(3);
  DistributedDataParallel ddp(toy.parameters, {}, group,
                              {.bucket_cap_mb = 0.0001, .first_bucket_mb = 0.0001});
  if (hook.call) ddp.register_comm_hook(hook);
  for (int step = 0; step < steps; ++step) {
    toy.zero_grad();
    const Tensor x = integers({12, toy.inputs}, static_cast<std::uint32_t>(step), 1);
    const Tensor mine = rows_of_rank(x, group->rank(), group->size());
    // The loss is multiplied by the number of ranks, so that the mean over the ranks is whole.
    ddp.forward([&] { return mul(sum(toy.forward(mine)), group->size()); }).backward();
  }
  Values out;
  for (const Tensor& p : toy.trained()) out.push_back(p.grad().to_vector<float>());
  return out;
}

using MakeHook = std::function<CommHook(const Group&)>;

std::vector<Values> gradients_with(int world, const MakeHook& make) {
  return run_ranks<Values>(world,
                           [&](const Group& group) { return gradients(group, make(group)); });
}

}  // namespace

TEST_CASE("a hook gets each bucket once, in order, with gradients that are not divided") {
  Fixture f;
  std::vector<GradBucket> seen;
  f.reducer->register_comm_hook({"spy", [&](const GradBucket& bucket) {
                                   f.group->log.push_back("hook " + std::to_string(bucket.index));
                                   seen.push_back(bucket);
                                   return Future(bucket.buffer);
                                 }});
  f.step({2, 1, 0});
  f.zero_grad();
  seen.clear();
  f.group->log.clear();
  f.step({2, 1, 0});
  CHECK(f.group->log ==
        Log{"broadcast", "grad 2", "hook 0", "grad 1", "hook 1", "grad 0", "hook 2", "all_gather"});
  REQUIRE(seen.size() == 3);
  for (std::size_t b = 0; b < 3; ++b) {
    const std::size_t p = 2 - b;
    CHECK(seen[b].is_last == (b == 2));
    REQUIRE(seen[b].parameters.size() == 1);
    CHECK(seen[b].parameters[0].is_same(f.params[p]));
    CHECK(seen[b].gradients[0].sizes() == f.params[p].sizes());
    CHECK(data_of(seen[b].gradients[0]) == data_of(seen[b].buffer));
    CHECK(seen[b].buffer.to_vector<float>() ==
          std::vector<float>(4 + p, 10.0F * static_cast<float>(p + 1)));
  }
}

TEST_CASE("what the future gives becomes the bucket, in order, after all hooks were called") {
  Fixture f;
  f.reducer->register_comm_hook(
      {"chain", [&](const GradBucket& bucket) {
         const std::string b = std::to_string(bucket.index);
         f.group->log.push_back("start " + b);
         return Future(mul(bucket.buffer, 2)).then([&, b](const Tensor& t) {
           f.group->log.push_back("go on " + b);
           return Future(add(t, 1.0));
         });
       }});
  f.step({2, 1, 0});
  CHECK(f.grad(0) == 21.0F);
  f.zero_grad();
  f.group->log.clear();
  f.step({0, 2, 1});
  CHECK(f.group->log == Log{"broadcast", "grad 0", "grad 2", "start 0", "grad 1", "start 1",
                            "start 2", "go on 0", "go on 1", "go on 2", "all_gather"});
  for (int p = 0; p < 3; ++p) CHECK(f.grad(p) == 20.0F * static_cast<float>(p + 1) + 1.0F);
}

TEST_CASE("without overlap a hook is called when backward is over, also by a rank that is alone") {
  Fixture f(3, {.caps = {Bytes(1), Bytes(1)}, .overlap = false}, 1);
  f.reducer->register_comm_hook({"spy", [&](const GradBucket& bucket) {
                                   f.group->log.push_back("hook " + std::to_string(bucket.index));
                                   return Future(bucket.buffer);
                                 }});
  f.step({2, 1, 0});
  f.group->log.clear();
  f.step({2, 1, 0});
  CHECK(f.group->log ==
        Log{"broadcast", "grad 2", "grad 1", "grad 0", "hook 0", "hook 1", "hook 2", "all_gather"});
}

TEST_CASE("a hook under no_sync is not called, and then gets the sum") {
  Fixture f;
  std::vector<float> seen;
  f.reducer->register_comm_hook({"spy", [&](const GradBucket& bucket) {
                                   seen.push_back(bucket.buffer.to_vector<float>()[0]);
                                   return Future(bucket.buffer);
                                 }});
  f.reducer->set_synchronising(false);
  f.step({2, 1, 0});
  CHECK(seen.empty());
  f.reducer->set_synchronising(true);
  f.step({2, 1, 0});
  CHECK(seen == std::vector<float>{20.0F});  // one bucket, which begins with p0
}

TEST_CASE("a hook is registered once, and before the first forward") {
  Fixture f;
  const auto once = [&](const char* name) {
    return complaint_of([&] { f.reducer->register_comm_hook({name, noop_hook().call}); });
  };
  CHECK(once("first") == "");
  CHECK(once("second") ==
        "a communication hook is registered already, 'first': DistributedDataParallel takes one; "
        "call both from one function");
  Fixture late;
  late.step({2, 1, 0});
  CHECK(complaint_of([&] { late.reducer->register_comm_hook(noop_hook()); }) ==
        "communication hook 'noop': register it before the first forward()");
}

TEST_CASE("a result that does not fit is one error on every rank, and no rank waits") {
  struct Case {
    std::function<Tensor(const Tensor& buffer)> result;
    const char* said;
  };
  const std::vector<Case> cases{
      {[](const Tensor& b) { return b.slice(0, 0, 5); }, "returned f32[5] on cpu"},
      {[](const Tensor& b) {
         return b.view({1, -1});
       },
       "returned f32[1, 66] on cpu"},
      {[](const Tensor& b) { return b.to(DType::f16); }, "returned f16[66] on cpu"},
      {[](const Tensor&) { return Tensor(); }, "returned nothing"}};
  for (const Case& c : cases)
    for (const int guilty : {0, 2, -1}) {
      const auto said = run_ranks<std::string>(3, [&](const Group& ranks) {
        const auto mine = [&](const Group& group, const GradBucket& bucket) {
          const bool wrong = guilty < 0 || group->rank() == guilty;
          return Future(wrong ? c.result(bucket.buffer) : bucket.buffer);
        };
        return complaint_of([&] {
          const Toy toy = mlp_toy(3);
          DistributedDataParallel ddp(toy.parameters, {}, ranks);
          ddp.register_comm_hook(ranks, mine, "mine");
          ddp.forward([&] { return sum(toy.forward(ones({2, toy.inputs}))); }).backward();
        });
      });
      INFO(c.said << ", rank " << guilty);
      CHECK_THAT(said[0], ContainsSubstring(guilty < 0 ? std::string("on every rank: ")
                                                       : "on rank " + std::to_string(guilty)));
      CHECK_THAT(said[0], ContainsSubstring("communication hook 'mine' " + std::string(c.said) +
                                            " for bucket 0, which is f32[66] on cpu: return a "
                                            "tensor like GradBucket::buffer"));
      CHECK(said[1] == said[0]);
      CHECK(said[2] == said[0]);
    }
}

TEST_CASE(
    "averaging hooks give what DDP gives without one; forgetting to divide gives W times it") {
  for (const int world : {1, 2, 3, 4}) {
    INFO("world " << world);
    const auto none = [](const auto&) { return CommHook(); };
    const Values want = gradients_with(world, none)[0];
    // The 11 bits of f16 represent the gradients exactly, even before the division.
    for (const auto& gradient : want)
      for (const float v : gradient) REQUIRE((v == std::round(v) && std::abs(v) <= 512));
    for (const MakeHook& make : {MakeHook(allreduce_hook), MakeHook(fp16_compress_hook)})
      for (const Values& got : gradients_with(world, make)) CHECK(got == want);
    const auto undivided = [](const Group& group) {
      return CommHook{"undivided", [group](const GradBucket& bucket) {
                        return all_reduce(group, bucket.buffer, comm::ReduceOp::sum);
                      }};
    };
    Values times_world = want;
    for (auto& gradient : times_world)
      for (float& v : gradient) v *= static_cast<float>(world);
    for (const Values& got : gradients_with(world, undivided)) CHECK(got == times_world);
  }
}

TEST_CASE("the 16-bit hooks round the gradient, the share of each rank, and each sum") {
  constexpr int kWorld = 3, kCount = 36;
  const auto values = [](int rank) {
    Generator g(static_cast<std::uint64_t>(rank) + 5);
    return randn({kCount}, g);
  };
  const auto train = [&](const Group& group, const CommHook& hook) {
    const Tensor w = trained(zeros({kCount}));
    DistributedDataParallel ddp({{"w", w}}, {}, group, {.algorithm = comm::Algorithm::direct});
    ddp.register_comm_hook(hook);
    ddp.forward([&] { return sum(mul(w, values(group->rank()))); }).backward();
    return Values{w.grad().to_vector<float>()};
  };
  // The direct algorithm has one chunk per rank, whose sum starts with that rank's value.
  const auto expect = [&]<class Half>(TypeTag<Half>) {
    std::vector<float> out;
    for (std::size_t i = 0; i < kCount; ++i) {
      const auto share = [&](int rank) {
        const auto chunk = static_cast<int>(i) * kWorld / kCount;
        const Half x(values((rank + chunk) % kWorld).to_vector<float>()[i]);
        return static_cast<float>(Half(static_cast<float>(x) / kWorld));
      };
      const Half two(share(0) + share(1));
      out.push_back(static_cast<float>(Half(static_cast<float>(two) + share(2))));
    }
    return out;
  };
  for (const Values& got :
       run_ranks<Values>(kWorld, [&](const Group& g) { return train(g, fp16_compress_hook(g)); }))
    CHECK(got[0] == expect(TypeTag<f16>{}));
  for (const Values& got :
       run_ranks<Values>(kWorld, [&](const Group& g) { return train(g, bf16_compress_hook(g)); }))
    CHECK(got[0] == expect(TypeTag<bf16>{}));
}

TEST_CASE("PowerSGD: what it leaves out of one step comes in later ones") {
  // Each rank's gradient differs but is constant. The errors telescope: the sum of all results plus
  // the mean of the ranks' last errors is the sum of the true means.
  constexpr int kWorld = 3, kSteps = 24;
  constexpr std::int64_t kRows = 12, kColumns = 10;
  const auto direction = [](int rank) {
    Generator g(static_cast<std::uint64_t>(rank) + 9);
    return randn({kRows, kColumns}, g);
  };
  const Tensor mean = mul(add(add(direction(0), direction(1)), direction(2)), 1.0 / kWorld);
  for (const bool feedback : {true, false}) {
    const auto errors = run_ranks<Values>(kWorld, [&](const Group& group) {
      const Tensor w = trained(zeros({kRows, kColumns}));
      DistributedDataParallel ddp({{"w", w}}, {}, group);
      const auto state =
          std::make_shared<PowerSgdState>(group, PowerSgdOptions{.matrix_approximation_rank = 2,
                                                                 .start_powersgd_iter = 2,
                                                                 .use_error_feedback = feedback});
      ddp.register_comm_hook(power_sgd_hook(state));
      Tensor total = zeros({kRows, kColumns});
      std::vector<float> off;
      for (int step = 0; step < kSteps; ++step) {
        w.set_grad({});
        ddp.forward([&] { return sum(mul(w, direction(group->rank()))); }).backward();
        total = add(total, w.grad());
        const Tensor behind = sub(mul(mean, step + 1), total);
        off.push_back(sqrt(sum(mul(behind, behind))).item<float>());
      }
      if (state->memory().before != 22 * kRows * kColumns ||
          state->memory().after != 22 * 2 * (kRows + kColumns))
        throw Error("PowerSGD counts what it sends wrongly");
      return Values{off, total.to_vector<float>()};
    });
    const std::vector<float>& off = errors[0][0];
    for (const Values& other : errors) CHECK(other == errors[0]);  // replicas stay equal
    CHECK(off[1] < 1e-5F);                                         // plain all-reduce until then
    CHECK(off[2] > 0.1F);
    // Without feedback, each step loses the same part.
    const float last = off[kSteps - 1];
    if (feedback)
      CHECK(last < 4 * off[2]);
    else
      CHECK(last > 10 * off[2]);
  }
}

TEST_CASE("PowerSGD of a gradient whose rank it can hold loses nothing") {
  const auto got = run_ranks<Values>(2, [](const Group& group) {
    const Tensor w = trained(zeros({12, 10})), b = trained(zeros({10}));
    DistributedDataParallel ddp({{"w", w}, {"b", b}}, {}, group);
    ddp.register_comm_hook(power_sgd_hook(std::make_shared<PowerSgdState>(
        group, PowerSgdOptions{.matrix_approximation_rank = 2, .start_powersgd_iter = 2})));
    // Each rank contributes one outer product, so the mean has rank 2.
    Generator g(static_cast<std::uint64_t>(group->rank()));
    const Tensor gradient = matmul(randn({12, 1}, g), randn({1, 10}, g));
    Values out;
    for (int step = 0; step < 4; ++step) {
      w.set_grad({}), b.set_grad({});
      ddp.forward([&] { return sum(add(sum(mul(w, gradient), {0}), b)); }).backward();
      out.push_back(w.grad().to_vector<float>());
    }
    out.push_back(b.grad().to_vector<float>());
    return out;
  });
  const Values& v = got[0];
  CHECK(got[1] == v);
  CHECK(v[4] == std::vector<float>(10, 1.0F));
  for (std::size_t i = 0; i < v[0].size(); ++i) {
    CHECK(v[1][i] == v[0][i]);  // all-reduced
    // Rounding of three chained products in f32, with sums of a dozen numbers of order 1.
    CHECK(std::abs(v[2][i] - v[0][i]) < 1e-5F);
    CHECK(std::abs(v[3][i] - v[0][i]) < 1e-5F);
  }
}

TEST_CASE("PowerSGD: a gradient of zeros stays zeros, not NaN") {
  const auto group = std::make_shared<FakeGroup>(1);
  PowerSgdState state(group,
                      {.start_powersgd_iter = 0, .use_error_feedback = false, .warm_start = false});
  const Tensor buffer = zeros({120});
  const Tensor result = state.exchange({0, true, buffer, {buffer.view({12, 10})}, {}}).wait();
  CHECK(result.to_vector<float>() == std::vector<float>(120, 0.0F));
}

TEST_CASE("PowerSGD refuses options that cannot work") {
  const auto group = std::make_shared<FakeGroup>(1);
  const auto said = [&](const PowerSgdOptions& options) {
    return complaint_of([&] { const PowerSgdState state(group, options); });
  };
  CHECK(
      said({.start_powersgd_iter = 1}) ==
      "PowerSGD: start_powersgd_iter must be at least 2 with error feedback or warm start, got 1");
  CHECK(said({.matrix_approximation_rank = 0}) ==
        "PowerSGD: matrix_approximation_rank must be at least 1, got 0");
  CHECK(said({.min_compression_rate = std::nan("")}) ==
        "PowerSGD: min_compression_rate must be above 0, got nan");
  CHECK(said({.orthogonalization_epsilon = -0.5}) ==
        "PowerSGD: orthogonalization_epsilon must not be negative, got -0.5");
  CHECK(said({.start_powersgd_iter = -1, .use_error_feedback = false, .warm_start = false}) ==
        "PowerSGD: start_powersgd_iter must not be negative, got -1");
  CHECK(said({.start_powersgd_iter = 0, .use_error_feedback = false, .warm_start = false}) == "");
}

TEST_CASE("a hook that waits itself stops backward; one that returns its future does not") {
  for (const bool waits : {true, false}) {
    Fixture f;
    const Group group(std::shared_ptr<void>(), f.group.get());
    f.reducer->register_comm_hook({"mine", [&](const GradBucket& bucket) {
                                     const Future sum =
                                         all_reduce(group, bucket.buffer, comm::ReduceOp::sum);
                                     return waits ? Future(sum.wait()) : sum;
                                   }});
    f.step({2, 1, 0});
    f.zero_grad();
    f.group->log.clear();
    f.step({2, 1, 0});
    CHECK(f.group->log ==
          (waits ? Log{"broadcast", "grad 2", "all_reduce(6 f32)", "wait", "grad 1",
                       "all_reduce(5 f32)", "wait", "grad 0", "all_reduce(4 f32)", "wait",
                       "all_gather"}
                 : Log{"broadcast", "grad 2", "all_reduce(6 f32)", "grad 1", "all_reduce(5 f32)",
                       "grad 0", "all_reduce(4 f32)", "wait", "wait", "wait", "all_gather"}));
  }
}

TEST_CASE("post-local SGD: equal gradients at first, then a subgroup's, and parameters averaged") {
  const auto got = run_ranks<Values>(4, [](const Group& group) {
    const Tensor w = trained(zeros({3}));
    const auto pair = [&](int first) {
      return group->new_group(std::vector<int>{first, first + 1});
    };
    const Group low = pair(0), high = pair(2);
    DistributedDataParallel ddp({{"w", w}}, {}, group);
    ddp.register_comm_hook(post_local_sgd_hook(group, 1, group->rank() < 2 ? low : high));
    PeriodicModelAverager averager(group, 2, 1);
    Values out;
    for (int step = 0; step < 4; ++step) {
      w.set_grad({});
      ddp.forward([&] { return sum(mul(w, 4.0 * (1 << group->rank()))); }).backward();
      out.push_back(w.grad().to_vector<float>());
      w.detach().copy_(sub(w.detach(), w.grad()));
      averager.average_parameters({w});
      out.push_back(w.to_vector<float>());
    }
    return out;
  });
  const auto three = [](float value) { return std::vector<float>(3, value); };
  for (std::size_t r = 0; r < 4; ++r) {
    const float own = r < 2 ? 6 : 24;  // (4 + 8) / 2, (16 + 32) / 2
    const Values want{three(15),  three(-15),       three(own), three(-30),
                      three(own), three(-30 - own), three(own), three(-60)};
    CHECK(got[r] == want);
  }
  const auto alone = std::make_shared<FakeGroup>(1);
  CHECK(complaint_of([&] { (void)post_local_sgd_hook(alone, -1); }) ==
        "post_local_sgd_hook: start must not be negative, got -1");
  CHECK(complaint_of([&] { const PeriodicModelAverager a(alone, 0); }) ==
        "PeriodicModelAverager: period must be at least 1, got 0");
  CHECK(complaint_of([&] { const PeriodicModelAverager a(alone, 1, -1); }) ==
        "PeriodicModelAverager: warmup_steps must not be negative, got -1");
  PeriodicModelAverager averager(alone, 1);
  CHECK_THAT(complaint_of([&] {
               averager.average_parameters({ones({1}), ones({1}).to(DType::f16)});
             }),
             ContainsSubstring("several dtypes or devices"));
}

TEST_CASE("gradients and parameters of 16 bits are averaged by every hook, as without one") {
  const MakeHook hooks[] = {[](const Group&) { return CommHook{}; },
                            allreduce_hook,
                            fp16_compress_hook,
                            bf16_compress_hook,
                            [](const Group& group) {
                              return power_sgd_hook(std::make_shared<PowerSgdState>(
                                  group, PowerSgdOptions{.start_powersgd_iter = 2}));
                            },
                            [](const Group& group) { return post_local_sgd_hook(group, 3); }};
  for (const DType dtype : {DType::f16, DType::bf16})
    for (std::size_t h = 0; h < std::size(hooks); ++h) {
      const auto got = run_ranks<Values>(2, [&](const Group& group) {
        const std::vector<Tensor> w{trained(zeros({8, 8}, {dtype})), trained(zeros({3}, {dtype}))};
        DistributedDataParallel ddp({{"matrix", w[0]}, {"vector", w[1]}}, {}, group);
        if (const CommHook hook = hooks[h](group); hook.call) ddp.register_comm_hook(hook);
        for (int step = 0; step < 3; ++step) {
          for (const Tensor& p : w) p.set_grad({});
          const double mine = 2.0 * (1 + group->rank());
          ddp.forward([&] { return add(mul(sum(w[0]), mine), mul(sum(w[1]), mine)); }).backward();
        }
        const Tensor mean = full({5}, 2.0 * (1 + group->rank()), {dtype});
        PeriodicModelAverager(group, 1).average_parameters({mean});
        return values_of({{"", w[0].grad()}, {"", w[1].grad()}, {"", mean}});
      });
      INFO(name_of(dtype) << ", hook " << h);
      for (const Values& values : got)
        for (const std::vector<float>& each : values)
          for (const float v : each) CHECK(std::abs(v - 3) < 0.1F);  // PowerSGD rounds more
    }
}
