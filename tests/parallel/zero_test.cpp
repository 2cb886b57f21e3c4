// Compares ZeRO-1 with plain data parallelism: the same parameters, a fraction of the state.
#include "runtime/parallel/beyond/zero.hpp"

#include <cmath>
#include <map>

#include "runtime/amp/grad_scaler.hpp"
#include "runtime/nn/layers.hpp"
#include "tests/parallel/ranks.hpp"
#include "tests/support/kernel_mode.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

using Make = ZeroRedundancyOptimizer::Make;

struct Kind {
  const char* name;
  Make make;
};
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"SGD", [](auto p) { return std::make_unique<SGD>(std::move(p), SGDOptions{.lr = 0.1}); }},
      {"SGD with momentum",
       [](auto p) {
         return std::make_unique<SGD>(
             std::move(p),
             SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
       }},
      {"Adam",
       [](auto p) {
         return std::make_unique<Adam>(std::move(p), AdamOptions{.lr = 0.02, .amsgrad = true});
       }},
      {"AdamW", [](auto p) {
         return std::make_unique<AdamW>(std::move(p), AdamOptions{.lr = 0.02, .weight_decay = 0.1});
       }}};
  return all;
}

constexpr std::int64_t kRows = 3;  // per rank and step
const std::vector<std::int64_t> kWidths{5, 13, 11, 2};

// No number of ranks above 1 divides the sizes of all parameters. There are three buckets. The last
// bias has two elements, so in worlds above 2 some ranks own none of them.
DdpOptions small_buckets() {
  DdpOptions options;
  options.first_bucket_mb = options.bucket_cap_mb = 0.0003;
  options.algorithm = comm::Algorithm::ring;
  return options;
}

std::vector<std::unique_ptr<MLP>> models(int world) {
  // This thread draws all models, because threads must not share the default generator.
  std::vector<std::unique_ptr<MLP>> out;
  for (int r = 0; r < world; ++r) {
    manual_seed(4);
    out.push_back(std::make_unique<MLP>(kWidths));
  }
  return out;
}

Tensor rows(std::int64_t width, std::int64_t step, int rank) {
  Generator random(static_cast<std::uint64_t>(100 * step + rank));
  return randn({kRows, width}, random);
}

Values parameters_of(const Module& model) {
  Values out;
  for (const Tensor& p : model.parameters()) out.push_back(p.to_vector<float>());
  return out;
}
Values values_of(const StateDict& state) {
  Values out;
  for (const auto& [name, t] : state) out.push_back(t.to(DType::f32).to_vector<float>());
  return out;
}
std::vector<std::string> names_of(const StateDict& state) {
  std::vector<std::string> out;
  for (const auto& [name, t] : state) out.push_back(name);
  return out;
}

struct Training {
  std::int64_t from = 0, to = 4;
  double clip = 0;
  const StateDict* start = nullptr;  // optimizer state to start from
};

template <class Optimizer, class Clip>
void train(DistributedDataParallel& ddp, Optimizer& optimizer, int rank, const Training& t,
           const Clip& clip) {
  if (t.start != nullptr) optimizer.load_state_dict(*t.start);
  for (std::int64_t step = t.from; step < t.to; ++step) {
    optimizer.zero_grad();
    const Tensor x = rows(kWidths.front(), step, rank), y = rows(kWidths.back(), step + 50, rank);
    mse_loss(ddp.forward(x), y).backward();
    if (t.clip > 0) clip();
    optimizer.set_lr(0.1 / static_cast<double>(step + 1));
    optimizer.step();
  }
}

struct Trained {
  Values parameters;
  StateDict state;
  Bytes bytes;
};

std::vector<Trained> plain(int world, const Make& make, const Training& t = {},
                           const Values& start = {}) {
  const auto all = models(world);
  return run_ranks<Trained>(world, [&](const Group& group) {
    MLP& model = *all[static_cast<std::size_t>(group->rank())];
    for (std::size_t p = 0; p < start.size(); ++p)
      model.parameters()[p].detach().copy_(from_vector(start[p], model.parameters()[p].sizes()));
    DistributedDataParallel ddp(model, group, small_buckets());
    const auto optimizer = make(model.parameters());
    train(ddp, *optimizer, group->rank(), t, [&] { clip_grad_norm_(model.parameters(), t.clip); });
    return Trained{parameters_of(model), optimizer->state_dict(), Bytes(0)};
  });
}

std::vector<Trained> zero(int world, const Make& make, ZeroGradients gradients,
                          const Training& t = {}, const Values& start = {}) {
  const auto all = models(world);
  return run_ranks<Trained>(world, [&](const Group& group) {
    MLP& model = *all[static_cast<std::size_t>(group->rank())];
    for (std::size_t p = 0; p < start.size(); ++p)
      model.parameters()[p].detach().copy_(from_vector(start[p], model.parameters()[p].sizes()));
    DistributedDataParallel ddp(model, group, small_buckets());
    ZeroRedundancyOptimizer optimizer(ddp, make, gradients);
    train(ddp, optimizer, group->rank(), t, [&] { optimizer.clip_grad_norm(t.clip); });
    return Trained{parameters_of(model), optimizer.state_dict(), optimizer.state_bytes()};
  });
}

double largest_difference(const Values& a, const Values& b) {
  double worst = 0;
  for (std::size_t p = 0; p < a.size(); ++p)
    for (std::size_t i = 0; i < a[p].size(); ++i) {
      const double d = std::abs(double{a[p][i]} - b[p][i]) / (1 + std::abs(double{b[p][i]}));
      if (!(d <= worst)) worst = std::isnan(d) ? HUGE_VAL : d;  // a NaN must not be lost
    }
  return worst;
}

}  // namespace

TEST_CASE("with all-reduced gradients ZeRO has plain training's parameters and state, bit for bit",
          "[zero]") {
  for (const kernels::Mode mode : {kernels::Mode::oracle, kernels::Mode::fast})
    for (int world = 1; world <= 5; ++world)
      for (const Kind& kind : kinds())
        for (const double clip : {0.0, 0.5}) {
          INFO(kind.name << ", " << world << " ranks, clip " << clip);
          const KernelMode chosen(mode);
          const auto want = plain(world, kind.make, {.clip = clip})[0];
          for (const Trained& got :
               zero(world, kind.make, ZeroGradients::all_reduced, {.clip = clip})) {
            CHECK(got.parameters == want.parameters);
            CHECK(names_of(got.state) == names_of(want.state));
            CHECK(values_of(got.state) == values_of(want.state));
          }
        }
}

TEST_CASE("with scattered gradients too on 1 and 2 ranks; on more the sums' order is another",
          "[zero]") {
  for (int world = 1; world <= 5; ++world)
    for (const Kind& kind : kinds())
      for (const double clip : {0.0, 0.5}) {
        INFO(kind.name << ", " << world << " ranks, clip " << clip);
        const auto want = plain(world, kind.make, {.clip = clip})[0];
        const auto all = zero(world, kind.make, ZeroGradients::scattered, {.clip = clip});
        for (const Trained& got : all) {
          CHECK(got.parameters == all[0].parameters);
          CHECK(names_of(got.state) == names_of(want.state));
          CHECK(values_of(got.state) == values_of(all[0].state));
          if (world <= 2 && clip == 0) {
            CHECK(got.parameters == want.parameters);
            CHECK(values_of(got.state) == values_of(want.state));
          }
          // Adam divides by the gradient's magnitude. Where that is nearly 0, rounding moves a
          // parameter by a fraction of the learning rate.
          CHECK(largest_difference(got.parameters, want.parameters) < 1e-4);
        }
      }
}

TEST_CASE("whole numbers: scattered gradients are the average, whoever has which part", "[zero]") {
  for (std::size_t which = 0; which < 4; ++which)
    for (int world = 1; world <= 5; ++world) {
      const auto body = [&](bool sharded) {
        return run_ranks<Values>(world, [&](const Group& group) {
          const Toy toy = all_toys(5)[which];
          DistributedDataParallel ddp(toy.parameters, {}, group, small_buckets());
          const Make make = [](auto p) {
            return std::make_unique<SGD>(std::move(p), SGDOptions{.lr = 0.25});
          };
          const auto optimizer = sharded ? nullptr : make(toy.trained());
          std::optional<ZeroRedundancyOptimizer> zero;
          if (sharded) zero.emplace(ddp, make);
          for (std::uint32_t step = 0; step < 2; ++step) {
            toy.zero_grad();
            // The same input on all ranks, so that the average is whole.
            const Tensor x = integers({4, toy.inputs}, step, 1);
            ddp.forward([&] { return sum(relu(toy.forward(x))); }).backward();
            sharded ? zero->step() : optimizer->step();
          }
          return test::values_of(toy.parameters);
        });
      };
      INFO(all_toys(5)[which].name << ", " << world << " ranks");
      const auto plainly = body(false);
      for (const Values& got : body(true)) CHECK(got == plainly[0]);
    }
}

TEST_CASE("GradScaler steps and skips a sharded optimizer as it does a plain one", "[zero]") {
  const auto run = [](int world, bool sharded, ZeroGradients gradients) {
    const auto all = models(world);
    return run_ranks<Values>(world, [&](const Group& group) {
      MLP& model = *all[static_cast<std::size_t>(group->rank())];
      DistributedDataParallel ddp(model, group, small_buckets());
      const Make& adamw = kinds()[3].make;
      std::unique_ptr<Optimizer> optimizer;
      if (sharded)
        optimizer = std::make_unique<ZeroRedundancyOptimizer>(ddp, adamw, gradients);
      else
        optimizer = adamw(model.parameters());
      GradScaler scaler({.init_scale = 1024});
      Values out;
      std::vector<float> made, scales;
      for (std::int64_t step = 0; step < 6; ++step) {
        optimizer->zero_grad();
        const Tensor x = rows(kWidths.front(), step, group->rank());
        const Tensor loss =
            mse_loss(ddp.forward(x), rows(kWidths.back(), step + 50, group->rank()));
        scaler.scale(loss).backward();
        // With scattered gradients, each rank sees only its own part.
        const bool alone = sharded && gradients == ZeroGradients::scattered;
        if (step % 3 == 1 && (!alone || step % world == group->rank()))
          optimizer->gradients()[0].fill_(INFINITY);
        scaler.unscale_(*optimizer);
        optimizer->set_lr(0.1 / static_cast<double>(step + 1));
        made.push_back(scaler.step(*optimizer) ? 1 : 0);
        scaler.update();
        scales.push_back(static_cast<float>(scaler.get_scale()));
      }
      out = parameters_of(model);
      out.push_back(made);
      out.push_back(scales);
      for (const auto& state : values_of(optimizer->state_dict())) out.push_back(state);
      return out;
    });
  };
  for (const int world : {1, 2, 3}) {
    const auto plainly = run(world, false, {});
    for (const ZeroGradients gradients : {ZeroGradients::all_reduced, ZeroGradients::scattered}) {
      INFO(world << " ranks, gradients " << static_cast<int>(gradients));
      const auto got = run(world, true, gradients);
      const std::size_t parameters = 6;
      for (const Values& rank : got) {
        CHECK(rank == got[0]);
        CHECK(rank[parameters] == std::vector<float>{1, 0, 1, 1, 0, 1});
        CHECK(rank[parameters + 1] == plainly[0][parameters + 1]);
        if (world <= 2 || gradients == ZeroGradients::all_reduced) CHECK(rank == plainly[0]);
        CHECK(largest_difference(rank, plainly[0]) < 1e-4);
      }
    }
  }
}

TEST_CASE("a rank keeps a W-th of the state, and the tails of the buckets", "[zero]") {
  const auto whole = [](const StateDict& state) {
    std::size_t bytes = 0;
    for (const auto& [name, t] : state)
      if (name.rfind("state.", 0) == 0 && name.find("step") == std::string::npos)
        bytes += size_in_bytes(t).value;
    return bytes;
  };
  const Make& adamw = kinds()[3].make;
  const std::size_t full = whole(plain(1, adamw)[0].state);
  for (int world = 1; world <= 5; ++world) {
    constexpr std::size_t kBuckets = 3, kTensors = 2, kCounts = 8 * 16;  // 8 bytes per step counter
    for (const Trained& got : zero(world, adamw, ZeroGradients::scattered)) {
      const auto n = static_cast<std::size_t>(world);
      CHECK(got.bytes.value <= full / n + kTensors * 4 * kBuckets * n + kCounts);
      CHECK(whole(got.state) == full);
    }
  }
}

TEST_CASE("the state of 3 ranks goes on with 1, 2 and 5, with ZeRO and without", "[zero]") {
  for (const Kind& kind : kinds()) {
    const Trained first = zero(3, kind.make, ZeroGradients::all_reduced, {.to = 2})[0];
    const Training rest{.from = 2, .to = 4, .clip = 0, .start = &first.state};
    for (const int world : {1, 2, 5}) {
      INFO(kind.name << ", " << world << " ranks");
      const auto want = plain(world, kind.make, rest, first.parameters)[0];
      for (const Trained& got :
           zero(world, kind.make, ZeroGradients::all_reduced, rest, first.parameters)) {
        CHECK(got.parameters == want.parameters);
        CHECK(values_of(got.state) == values_of(want.state));
      }
    }
  }
}

TEST_CASE("what ZeRO refuses is one line with the remedy", "[zero]") {
  const Make& sgd = kinds()[1].make;
  const Make& adam = kinds()[2].make;
  const auto refused = [&](const std::function<void(MLP&, const Group&)>& body) {
    const auto all = models(2);
    const auto errors = run_ranks<std::string>(2, [&](const Group& group) {
      return complaint_of([&] { body(*all[static_cast<std::size_t>(group->rank())], group); });
    });
    CHECK(errors[0] == errors[1]);
    CHECK(std::count(errors[0].begin(), errors[0].end(), '\n') == 0);
    return errors[0];
  };
  CHECK_THAT(refused([&](MLP& model, const Group& group) {
               DistributedDataParallel ddp(model, group);
               ddp.register_comm_hook(allreduce_hook(group));
               ZeroRedundancyOptimizer(ddp, sgd);
             }),
             ContainsSubstring("a communication hook is registered already, 'allreduce'"));
  CHECK_THAT(refused([&](MLP& model, const Group& group) {
               DistributedDataParallel ddp(model, group);
               mse_loss(ddp.forward(rows(5, 0, 0)), rows(2, 0, 0)).backward();
               ZeroRedundancyOptimizer(ddp, sgd);
             }),
             ContainsSubstring("register it before the first forward()"));
  CHECK_THAT(refused([&](MLP& model, const Group& group) {
               DistributedDataParallel ddp(model, group);
               ZeroRedundancyOptimizer one(ddp, sgd);
               ZeroRedundancyOptimizer(ddp, sgd);
             }),
             ContainsSubstring("a communication hook is registered already, 'zero'"));
  const auto loading = [&](const std::function<void(StateDict&)>& spoil) {
    return refused([&](MLP& model, const Group& group) {
      DistributedDataParallel ddp(model, group);
      ZeroRedundancyOptimizer optimizer(ddp, adam);
      mse_loss(ddp.forward(rows(5, 0, 0)), rows(2, 0, 0)).backward();
      optimizer.step();
      StateDict state = optimizer.state_dict();
      spoil(state);
      optimizer.load_state_dict(state);
    });
  };
  CHECK(loading([](StateDict&) {}).empty());
  CHECK_THAT(loading([](StateDict& s) { s["state.0.step"] = from_vector<std::int64_t>({-1}, {}); }),
             ContainsSubstring("'state.0.step' is -1, which training never produces"));
  CHECK_THAT(loading([](StateDict& s) { s["state.1.exp_avg_sq"].fill_(NAN); }),
             ContainsSubstring("'state.1.exp_avg_sq' holds NaN or an infinity"));
  CHECK_THAT(loading([](StateDict& s) { s["state.9.exp_avg"] = zeros({3}); }),
             ContainsSubstring("'state.9.exp_avg' belongs to no parameter"));
  CHECK_THAT(loading([](StateDict& s) { s["state.0.exp_avg"] = zeros({3}); }),
             ContainsSubstring("'state.0.exp_avg' is [3], its parameter is [13, 5]"));
  CHECK_THAT(loading([](StateDict& s) {
               s["state.0.momentum_buffer"] = zeros({13, 5});
             }),
             ContainsSubstring("is unknown to this optimizer"));
  CHECK_THAT(loading([](StateDict& s) {
               s["state.x"] = zeros({13, 5});
             }),
             ContainsSubstring("is not an entry of a parameter"));
  CHECK_THAT(loading([](StateDict& s) { s.erase("param_groups.0.params"); }),
             ContainsSubstring("'param_groups.0.params' is missing"));
  CHECK_THAT(loading([](StateDict& s) { s["param_groups.0.params"] = arange(4); }),
             ContainsSubstring("it has 4 parameters, this optimizer has 6"));
  CHECK_THAT(loading([](StateDict& s) { s.erase("param_groups.0.eps"); }),
             ContainsSubstring("the state is of another kind"));
}
