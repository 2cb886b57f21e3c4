// Tests ignored parameters, the gradients that the program's hooks see, the logging data, and the
// check that replicas are equal.
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <unistd.h>

#include "runtime/nn/layers.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/drift.hpp"
#include "tests/parallel/ranks.hpp"
#include "tests/parallel/reducer_fixture.hpp"

using namespace ringsmith;
using namespace ringsmith::test;
using Fixture = test::ReducerFixture;

TEST_CASE("ignored parameters and buffers are each rank's own: not broadcast, not reduced") {
  const auto got = run_ranks<Values>(3, [](const Group& group) {
    const double rank = group->rank();
    // Ignored tensors may differ in size, too.
    const Tensor shared = trained(full({2}, rank));
    const Tensor own = trained(full({2 + group->rank()}, rank));
    const Tensor table = full({1}, rank), statistics = full({1}, rank);
    DistributedDataParallel ddp({{"shared", shared}, {"own", own}},
                                {{"table", table}, {"statistics", statistics}}, group,
                                {.ignored = {"table", "own"}});
    Values seen{shared.to_vector<float>(), own.to_vector<float>(), table.to_vector<float>(),
                statistics.to_vector<float>()};
    table.fill_(10 + rank);
    ddp.forward([&] { return add(sum(mul(shared, 3 * rank)), sum(mul(own, 3 * rank))); })
        .backward();
    seen.push_back(shared.grad().to_vector<float>());
    seen.push_back(own.grad().to_vector<float>());
    seen.push_back(table.to_vector<float>());
    return seen;
  });
  for (std::size_t r = 0; r < 3; ++r) {
    const auto rank = static_cast<float>(r);
    CHECK(got[r][0] == std::vector<float>(2, 0));
    CHECK(got[r][1] == std::vector<float>(2 + r, rank));
    CHECK(got[r][2] == std::vector<float>{rank});
    CHECK(got[r][3] == std::vector<float>{0});
    CHECK(got[r][4] == std::vector<float>(2, 3));
    CHECK(got[r][5] == std::vector<float>(2 + r, 3 * rank));
    CHECK(got[r][6] == std::vector<float>{10 + rank});
  }
}

TEST_CASE("a name that is to be ignored must exist, and be ignored by all ranks") {
  const auto said = [](const std::function<std::vector<std::string>(int rank)>& ignored) {
    return run_ranks<std::string>(2, [&](const Group& group) {
      const Tensor a = trained(zeros({2})), b = trained(zeros({2}));
      return complaint_of([&] {
        const DistributedDataParallel ddp({{"a", a}, {"b", b}}, {}, group,
                                          {.ignored = ignored(group->rank())});
      });
    });
  };
  for (const std::string& each : said([](int) { return std::vector<std::string>{"c", "a", "d"}; }))
    CHECK(
        each ==
        "DdpOptions::ignored: the model has no parameter and no buffer of the name 'c', 'd'; give "
        "names as named_parameters() and named_buffers() do");
  for (const auto& differing : {std::vector<std::string>{"b"}, {}, {"z"}})
    for (const std::string& each :
         said([&](int rank) { return rank == 0 ? std::vector<std::string>{"a"} : differing; }))
      CHECK_THAT(each, ContainsSubstring("ranks do not hold the same model"));
}

namespace {

class Changing : public Module {
 public:
  Changing() {
    register_parameter("w", w, full({2}, 1));
    register_parameter("frozen", frozen, full({2}, 1));
    frozen.requires_grad_(false);
    register_buffer("m", m, full({2}, 1));
  }
  Tensor forward(const Tensor& x) override { return add(add(mul(x, w), mul(x, frozen)), m); }
  void add_parameter() { register_parameter("late", late, full({2}, 1)); }
  void add_buffer() { register_buffer("late", late, full({2}, 1)); }
  Tensor w, frozen, m, late;
};

}  // namespace

TEST_CASE("parameters that change after wrapping are named by the next forward, in every mode") {
  struct Change {
    std::function<void(Changing&)> make;
    std::string says;
  };
  const std::vector<Change> changes{
      {[](Changing& c) { c.frozen.requires_grad_(); }, "parameter 'frozen' was unfrozen after"},
      {[](Changing& c) { c.w.requires_grad_(false); }, "parameter 'w' was frozen after"},
      {[](Changing& c) { c.add_parameter(); }, "parameter 'late' was added or replaced after"},
      {[](Changing& c) { c.w = trained(full({2}, 1)); }, "parameter 'w' was added or replaced"},
      {[](Changing& c) { c.w = {}; }, "parameter 'w' was removed after"},
      {[](Changing& c) { c.add_buffer(); }, "buffer 'late' was added or replaced after"},
      {[](Changing& c) { c.m = full({2}, 2); }, "buffer 'm' was added or replaced after"}};
  for (const Change& change : changes)  // no structured binding: clang 14 cannot capture one
    for (const int mode : {0, 1, 2, 3}) {
      CAPTURE(change.says, mode);
      DdpOptions options;
      options.find_unused_parameters = mode == 1;
      options.static_graph = mode == 2;
      const auto got = run_ranks<std::string>(2, [&](const Group& group) {
        Changing module;
        DistributedDataParallel ddp(module, group, options);
        const auto step = [&] { sum(ddp.forward(full({2}, 1))).backward(); };
        step();
        change.make(module);
        {
          const NoGradGuard evaluating;  // needs no gradients, so the module may have changed
          if (module.w.defined()) (void)ddp.forward(full({2}, 1));
        }
        return complaint_of([&] {
          if (mode == 3) {
            const auto local = ddp.no_sync();
            step();
          } else {
            step();
          }
        });
      });
      for (const std::string& each : got)
        CHECK_THAT(each, ContainsSubstring(change.says) && ContainsSubstring("construct it again"));
    }
}

TEST_CASE("a tensor or a name that is given twice is refused before anything is sent") {
  const Tensor a = trained(zeros({2})), b = trained(zeros({2}));
  const auto group = std::make_shared<test::FakeGroup>(2, 0);
  using Wrapped = DistributedDataParallel;
  CHECK_THROWS_WITH(Wrapped({{"a", a}, {"b", b}, {"a", zeros({2})}}, {}, group),
                    ContainsSubstring("parameters 'a' and 'a' have the same name"));
  CHECK_THROWS_WITH(Wrapped({{"a", a}, {"b", a}}, {}, group),
                    ContainsSubstring("parameters 'a' and 'b' have the same tensor"));
  CHECK_THROWS_WITH(Wrapped({{"a", a}}, {{"m", b}, {"m", a}}, group),
                    ContainsSubstring("buffers 'm' and 'm' have the same name"));
  CHECK(group->log.empty());
}

TEST_CASE("a gradient hook that is added after wrapping runs before its bucket leaves") {
  Fixture f;  // its own logging hooks are registered after the reducer
  f.step({2, 1, 0});
  f.zero_grad();
  for (const Tensor& p : f.params)
    register_post_accumulate_grad_hook(p, [](const Tensor& leaf) { leaf.grad().fill_(7); });
  std::vector<float> sent;
  f.group->on_all_reduce = [&](comm::Buffer data) {
    sent.push_back(*reinterpret_cast<const float*>(data.data()));
  };
  f.step({2, 1, 0});
  CHECK(sent == std::vector<float>{7, 7, 7});
  for (int p = 0; p < 3; ++p) CHECK(f.grad(p) == 7.0F);
}

TEST_CASE("an exception out of a no_sync scope, or of a forward, leaves the next step whole") {
  const auto got = run_ranks<Values>(2, [](const Group& group) {
    const Tensor w = trained(zeros({2}));
    DistributedDataParallel ddp({{"w", w}}, {}, group);
    const auto step = [&] {
      ddp.forward([&] { return sum(mul(w, 2.0 + 2 * group->rank())); }).backward();
    };
    const auto fails = [&](const std::function<void()>& body) {
      if (complaint_of(body) != "on purpose") throw Error("the exception got lost");
    };
    fails([&] {
      const auto local = ddp.no_sync();
      step();
      throw Error("on purpose");
    });
    Values seen{w.grad().to_vector<float>()};
    step();
    seen.push_back(w.grad().to_vector<float>());
    w.set_grad({});
    fails([&] {
      const auto local = ddp.no_sync();
      (void)ddp.forward([&]() -> Tensor { throw Error("on purpose"); });
    });
    fails([&] { (void)ddp.forward([&]() -> Tensor { throw Error("on purpose"); }); });
    step();
    seen.push_back(w.grad().to_vector<float>());
    return seen;
  });
  CHECK(got[0] == Values{{2, 2}, {6, 6}, {3, 3}});
  CHECK(got[1] == Values{{4, 4}, {6, 6}, {3, 3}});
}

TEST_CASE("nested no_sync scopes end with the outermost, and one reduction is made for all") {
  Fixture f;
  f.step({2, 1, 0});
  f.zero_grad();
  f.group->log.clear();
  {
    const DistributedDataParallel::NoSync outer(*f.reducer);
    f.step({2, 1, 0});
    {
      const DistributedDataParallel::NoSync inner(*f.reducer);
      f.step({2, 1, 0});
    }
    f.step({2, 1, 0});
  }
  f.step({2, 1, 0});
  CHECK(f.grad(2) == 120.0F);
  CHECK(std::count(f.group->log.begin(), f.group->log.end(), "all_reduce(6 f32)") == 1);
}

TEST_CASE("logging data tells the buckets, the order of the gradients and the options") {
  const auto got = run_ranks<std::map<std::string, std::string>>(2, [](const Group& group) {
    const Tensor a = trained(zeros({4})), b = trained(zeros({6})), c = trained(zeros({2}));
    DistributedDataParallel ddp({{"a", a}, {"b", b}, {"c", c}}, {}, group,
                                {.bucket_cap_mb = 20.0 / (1 << 20),
                                 .first_bucket_mb = 8.0 / (1 << 20),
                                 .static_graph = true});
    ddp.register_comm_hook(bf16_compress_hook(group));
    for (int i = 0; i < 3; ++i)
      ddp.forward([&] {
           const Tensor first = sum(a);
           return add(first, sum(b));  // its gradient is the first to be ready
         })
          .backward();
    const LoggingData data = ddp.logging_data();
    if (to_text(data).find("comm_hook: bf16_compress\n") == std::string::npos)
      throw Error("to_text() lacks the hook");
    return std::map<std::string, std::string>(data.begin(), data.end());
  });
  for (const auto& data : got) {
    const std::map<std::string, std::string> want{
        {"world_size", "2"},
        {"iteration", "3"},
        {"num_parameter_tensors", "3"},
        {"total_parameter_size_bytes", "48"},
        {"dtypes", "f32"},
        {"bucket_cap_bytes", "20"},
        {"first_bucket_bytes", "8"},
        {"static_graph", "1"},
        {"find_unused_parameters", "0"},
        {"comm_hook", "bf16_compress"},
        {"join_uneven_inputs", "0"},
        {"has_rebuilt_buckets", "1"},
        {"bucket_sizes", "48"},
        {"rebuilt_bucket_sizes", "8, 24, 16"},
        {"rebuilt_per_bucket_param_indices", "2, 1, 0"},
        {"prev_iteration_grad_ready_order_indices", "2, 1, 0"},
        {"unused_parameter_size", "8"}};
    for (const auto& [name, value] : want) {
      INFO(name);
      CHECK(data.at(name) == value);
    }
    CHECK(std::stoll(data.at("backward_comm_time")) > 0);
    CHECK(std::stoll(data.at("backward_comm_time")) >= std::stoll(data.at("exposed_comm_time")));
  }
  CHECK(got[1].at("rank") == "1");
}

TEST_CASE("find_unused_parameters costs a walk over the graph in each forward, static_graph none") {
  const auto group = comm::init_process_group(
      std::make_shared<comm::ThreadBootstrap>(std::make_shared<comm::ThreadRendezvous>(1), 0));
  struct Kind {
    const char* name;
    DdpOptions options;
    double seconds = 1;  // of the fastest forward pass
    Tensor w = trained(full({1}, 1.0));
    std::unique_ptr<DistributedDataParallel> ddp = {};
  };
  std::array<Kind, 2> kinds{{{"find_unused_parameters", {.find_unused_parameters = true}},
                             {"static_graph", {.static_graph = true}}}};
  for (Kind& kind : kinds)
    kind.ddp = std::make_unique<DistributedDataParallel>(NamedTensors{{"w", kind.w}},
                                                         NamedTensors{}, group, kind.options);
  for (int again = 0; again < 100; ++again)  // alternating, so that a slow phase affects both
    for (Kind& kind : kinds) {
      const auto start = std::chrono::steady_clock::now();
      const Tensor loss = kind.ddp->forward([&] {
        Tensor x = kind.w;
        for (int i = 0; i < 500; ++i) x = mul(x, 1.0);
        return sum(x);
      });
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      kind.seconds = std::min(kind.seconds, took.count());
      loss.backward();
    }
  INFO(kinds[0].seconds << " and " << kinds[1].seconds << " s");
  CHECK(kinds[0].seconds > 1.02 * kinds[1].seconds);
  CHECK_FALSE(kinds[0].ddp->reducer().rebuilt());
  CHECK(kinds[1].ddp->reducer().rebuilt());
}

TEST_CASE("drift: parameters that are not finite are named, in any place and dtype") {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL})
      for (const std::int64_t at : {0, 7, 8, 2000}) {
        Tensor spoiled = ones({2001}, {DType::f64});
        spoiled.data<double>()[at] = bad;
        CHECK(complaint_of([&] {
                check_finite({{"good", ones({3})}, {"bad", spoiled.to(dtype)}});
              }).starts_with("'bad' holds NaN or an infinity: "));
      }
  const double most = std::numeric_limits<double>::max();
  CHECK_NOTHROW(check_finite({{"large", full({9}, most, {DType::f64})},
                              {"integers", ones({2}, {DType::i64})},
                              {"empty", Tensor::empty({0})}}));
}

TEST_CASE("drift: one bit of one parameter on one rank is found, and named on every rank") {
  const auto check = [](int world, const std::function<void(int rank, MLP&)>& spoil) {
    return run_ranks<std::string>(world, [&](const Group& group) {
      MLP model({5, 7, 3});
      Generator g(3);
      for (const Tensor& p : model.parameters()) fill_normal(p.span<float>(), 0, 1, g);
      spoil(group->rank(), model);
      return complaint_of([&] { check_drift(*group, model.named_parameters()); });
    });
  };
  for (const int world : {1, 2, 3})
    for (const std::string& each : check(world, [](int, MLP&) {})) CHECK(each == "");
  const auto flip = [](const Tensor& t, std::int64_t i) {
    reinterpret_cast<std::uint32_t*>(t.data<float>())[i] ^= 1U;
  };
  for (std::int64_t i = 0; i < 7; ++i)
    for (const std::string& each : check(3, [&](int rank, MLP&model) {
           if (rank == 1) flip(model.parameters()[1], i);
         }))
      CHECK(each ==
            "the replicas have drifted apart: '0.bias' has one value on ranks 0, 2 and another on "
            "rank 1; let all ranks start from one state and make the same updates");
  for (const std::string& each : check(3, [&](int rank, MLP&model) {
         for (std::size_t p = 1; p < 4; ++p)
           model.parameters()[p].data<float>()[0] = static_cast<float>(rank);
       }))
    CHECK(each ==
          "the replicas have drifted apart: '0.bias' has one value on rank 0 and another on rank 1 "
          "and another on rank 2 (the first of 3 that differ); let all ranks start from one state "
          "and make the same updates");
  // +0 and -0 are equal, but have different bits.
  const auto zero = check(2, [&](int rank, MLP& model) {
    model.parameters()[0].data<float>()[34] = rank == 0 ? 0.0F : -0.0F;
  });
  CHECK_THAT(zero[0], ContainsSubstring("'0.weight'"));
}

TEST_CASE("overlap is automatic if the ranks of this machine leave a core free") {
  struct SpreadGroup : FakeGroup {
    SpreadGroup(int world, int ranks_here) : FakeGroup(world), here(ranks_here) {}
    [[nodiscard]] int ranks_on_machine() const override { return here; }
    int here;
  };
  const auto overlap = [](int world, int ranks_here) {
    const Tensor w = trained(zeros({2}));
    const DistributedDataParallel ddp(
        {{"w", w}}, {}, std::make_shared<SpreadGroup>(world, ranks_here), {.init_sync = false});
    const LoggingData data = ddp.logging_data();
    return std::map(data.begin(), data.end()).at("overlap");
  };
  const int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  CHECK(overlap(cores, cores) == "0");
  CHECK(overlap(4 * cores, cores) == "0");
  CHECK(overlap(4 * cores, cores - 1) == "1");
}
