// A step that GradScaler skips leaves nothing behind. With every communication hook, a run with
// additional steps whose gradients overflow must have the bits of a run without them.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "runtime/amp/grad_scaler.hpp"
#include "runtime/autograd/autocast.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/agreement.hpp"
#include "runtime/parallel/beyond/post_local_sgd.hpp"
#include "runtime/parallel/beyond/power_sgd.hpp"
#include "tests/parallel/ranks.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

struct Made {
  CommHook hook;
  std::function<Values()> state = [] { return Values(); };
};

struct HookCase {
  std::string name;
  std::function<Made(const Group&)> make;
};

void append(Values& out, const std::map<int, Tensor>& by_bucket) {
  for (const auto& [bucket, tensor] : by_bucket) {
    out.push_back({static_cast<float>(bucket)});
    out.push_back(tensor.to_vector<float>());
  }
}

// Takes the state by value, because reading it draws random numbers.
Values state_of(PowerSgdState::Memory memory) {
  Values out;
  append(out, memory.errors);
  append(out, memory.qs);
  out.push_back(randn({4}, memory.seeds).to_vector<float>());
  for (const std::int64_t n : {memory.iteration, memory.before, memory.after})
    out.push_back({static_cast<float>(n)});
  return out;
}

HookCase power_sgd(int rank, bool feedback, bool warm, std::int64_t start = 2) {
  return {"powersgd of rank " + std::to_string(rank) + (feedback ? ", feedback" : "") +
              (warm ? ", warm" : ""),
          [=](const Group& group) {
            const auto state = std::make_shared<PowerSgdState>(
                group, PowerSgdOptions{.matrix_approximation_rank = rank,
                                       .start_powersgd_iter = start,
                                       .use_error_feedback = feedback,
                                       .warm_start = warm});
            return Made{power_sgd_hook(state), [=] { return state_of(state->memory()); }};
          }};
}

// A program's own hook, which adds half of the previous pass's result.
Made momentum_hook(const Group& group) {
  struct State {
    std::map<int, Tensor> now, last;
    double scale = 0, last_scale = 0;
  };
  const auto state = std::make_shared<State>();
  return {{"momentum",
           [=](const GradBucket& bucket) {
             if (bucket.index == 0) {
               state->last = state->now, state->last_scale = state->scale;
               for (auto& [index, kept] : state->now)
                 kept = mul(kept, bucket.loss_scale / state->scale);
               state->scale = bucket.loss_scale;
             }
             return allreduce_hook(group).call(bucket).then([=](const Tensor& sum) {
               const Tensor& before = state->now[bucket.index];  // buckets are rebuilt once
               const bool fits = before.defined() && before.numel() == sum.numel();
               const Tensor out = fits ? add(sum, mul(before, 0.5)) : sum.clone();
               state->now[bucket.index] = out;
               return out.clone();
             });
           },
           [=] { state->now = state->last, state->scale = state->last_scale; }},
          [=] {
            Values out;
            append(out, state->now);
            return out;
          }};
}

std::vector<HookCase> all_hooks() {
  return {{"none", [](const Group&) { return Made(); }},
          {"allreduce", [](const Group& g) { return Made{allreduce_hook(g)}; }},
          {"fp16", [](const Group& g) { return Made{fp16_compress_hook(g)}; }},
          {"bf16", [](const Group& g) { return Made{bf16_compress_hook(g)}; }},
          {"noop", [](const Group&) { return Made{noop_hook()}; }},
          // Its counter of passes is private, but affects the gradients after the third pass.
          {"post-local SGD", [](const Group& g) { return Made{post_local_sgd_hook(g, 3)}; }},
          {"of a program", momentum_hook},
          power_sgd(1, true, true),
          power_sgd(2, true, true),
          power_sgd(2, true, false),
          power_sgd(1, false, true),
          power_sgd(1, false, false, 0)};
}

enum class Overflow : std::uint8_t { one_rank, every_rank, in_unscaling };

// Returns parameters, gradients and the hook's state after each step. Each s in `before` adds an
// overflowing step before step s.
Values train(const Group& group, const HookCase& hook, Overflow how,
             const std::vector<int>& before) {
  constexpr int kSteps = 7;
  Generator g(7);
  const Tensor w1 = trained(mul(randn({24, 16}, g), 0.3)), b1 = trained(mul(randn({24}, g), 0.3)),
               w2 = trained(mul(randn({10, 24}, g), 0.3)), b2 = trained(mul(randn({10}, g), 0.3));
  const std::vector<Tensor> parameters{w1, b1, w2, b2};
  DistributedDataParallel ddp({{"w1", w1}, {"b1", b1}, {"w2", w2}, {"b2", b2}}, {}, group,
                              {.bucket_cap_mb = 0.0005, .first_bucket_mb = 0.0005});
  const Made made = hook.make(group);
  if (made.hook.call) ddp.register_comm_hook(made.hook);
  AdamW optimizer(parameters, {.lr = 0.01});
  GradScaler scaler({.any_rank = any_rank(group)});
  PeriodicModelAverager averager(group, 2, 1);
  const auto step = [&](int number, bool overflows) {
    optimizer.zero_grad();
    Generator draw(static_cast<std::uint64_t>(100 * number + group->rank()));
    const Tensor x = randn({4, 16}, draw);
    const bool here = how == Overflow::every_rank || number % group->size() == group->rank();
    if (overflows && here && how != Overflow::in_unscaling) x.data<float>()[5] = 7e4F;
    Tensor loss;
    {
      const Autocast autocast(DType::f16);
      loss = mean(
          to(ddp.forward([&] { return linear(relu(linear(x, w1, b1)), w2, b2); }), DType::f32));
    }
    const bool late = overflows && how == Overflow::in_unscaling;
    // The true gradients, times 1e40, overflow; the scaled ones are multiplied by 200.
    if (late) loss = mul(mul(loss, 1e20), 1e20);
    scaler.update(late ? 2e-38 : 1024);  // also forgets the previous step
    scaler.scale(loss).backward();
    if (late && !std::isfinite(sum(w2.grad()).item<float>()))
      throw Error("this one must overflow later");
    if (scaler.step(optimizer) == overflows) throw Error("the wrong steps are skipped");
    averager.average_parameters(parameters);
  };
  Values out;
  for (int s = 0; s < kSteps; ++s) {
    for (int n = 0; n < std::count(before.begin(), before.end(), s); ++n) step(50 + s + n, true);
    step(s, false);
    for (const Tensor& p : parameters) {
      out.push_back(p.to_vector<float>());
      out.push_back(p.grad().to_vector<float>());
    }
    for (auto& values : made.state()) out.push_back(std::move(values));
  }
  return out;
}

}  // namespace

TEST_CASE("every hook: with skipped steps in between, bits are those of a run without them") {
  const std::vector<std::vector<int>> places{{0}, {0, 1}, {2}, {3, 3, 3, 6}, {0, 2, 3, 4, 5, 6}};
  for (const HookCase& hook : all_hooks())
    for (const int world : {1, 2, 3}) {
      const auto run = [&](Overflow how, const std::vector<int>& before) {
        return run_ranks<Values>(
            world, [&](const Group& group) { return train(group, hook, how, before); });
      };
      const auto want = run(Overflow::one_rank, {});
      for (const auto& values : want[0])
        for (const float v : values) REQUIRE(std::isfinite(v));
      for (const Overflow how : {Overflow::one_rank, Overflow::every_rank, Overflow::in_unscaling})
        for (const auto& before : places) {
          INFO(hook.name << ", " << world << " ranks, overflow " << static_cast<int>(how)
                         << ", first before step " << before[0]);
          CHECK(run(how, before) == want);
        }
    }
}

namespace {

// Like train(), but in f32, and each overflow halves the scale. Products with a power of two are
// exact, so this must not change a bit of the later steps.
Values train_with_backoff(const Group& group, const HookCase& hook,
                          const std::vector<int>& before) {
  Generator g(7);
  const Tensor w = trained(mul(randn({24, 16}, g), 0.3)), b = trained(mul(randn({24}, g), 0.3));
  DistributedDataParallel ddp({{"w", w}, {"b", b}}, {}, group, {.first_bucket_mb = 0.0005});
  const Made made = hook.make(group);
  if (made.hook.call) ddp.register_comm_hook(made.hook);
  SGD optimizer({w, b}, {.lr = 0.05, .momentum = 0.9});
  GradScaler scaler({.init_scale = 4096, .any_rank = any_rank(group)});
  const auto step = [&](int number, bool overflows) {
    optimizer.zero_grad();
    Generator draw(static_cast<std::uint64_t>(100 * number + group->rank()));
    const Tensor x = randn({4, 16}, draw);
    if (overflows && number % group->size() == group->rank()) x.data<float>()[5] = INFINITY;
    const Tensor y = ddp.forward([&] { return linear(x, w, b); });
    scaler.scale(mean(mul(y, y))).backward();
    if (scaler.step(optimizer) == overflows) throw Error("the wrong steps are skipped");
    scaler.update();
  };
  Values out;
  for (int s = 0; s < 8; ++s) {
    for (int n = 0; n < std::count(before.begin(), before.end(), s); ++n) step(50 + s + n, true);
    step(s, false);
    for (const Tensor& p : {w, b}) {
      out.push_back(p.to_vector<float>());
      out.push_back(p.grad().to_vector<float>());
    }
  }
  return out;
}

}  // namespace

TEST_CASE("every hook: bits do not depend on how often overflows have halved the scale") {
  for (const HookCase& hook : all_hooks()) {
    if (hook.name == "fp16") continue;  // f16 rounds its smallest numbers to fewer digits
    for (const int world : {1, 2, 3}) {
      const auto run = [&](const std::vector<int>& before) {
        return run_ranks<Values>(
            world, [&](const Group& group) { return train_with_backoff(group, hook, before); });
      };
      const auto want = run({});
      for (const std::vector<int>& before :
           {std::vector<int>{0}, {4}, {3, 3, 3, 5}, {6, 6, 6, 6, 6, 6, 6, 6}}) {
        INFO(hook.name << ", " << world << " ranks, first before step " << before[0]);
        CHECK(run(before) == want);
      }
    }
  }
}

TEST_CASE("a hook hears of a skipped step once, at once, and of no other") {
  for (const int optimizers : {1, 2}) {
    const auto heard = run_ranks<std::vector<int>>(2, [&](const Group& group) {
      const Tensor a = trained(ones({5})), b = trained(ones({4}));
      DistributedDataParallel ddp({{"a", a}, {"b", b}}, {}, group);
      std::vector<int> out;
      int count = 0;
      CommHook hook = allreduce_hook(group);
      hook.skipped = [&] { ++count; };
      ddp.register_comm_hook(hook);
      std::vector<std::unique_ptr<SGD>> all;
      if (optimizers == 1)
        all.push_back(std::make_unique<SGD>(std::vector<Tensor>{a, b}, SGDOptions{.lr = 0.1}));
      else
        for (const Tensor& p : {a, b})
          all.push_back(std::make_unique<SGD>(std::vector<Tensor>{p}, SGDOptions{.lr = 0.1}));
      GradScaler scaler({.init_scale = 8});
      for (const double factor : std::vector<double>{1, INFINITY, 1, NAN, 1}) {
        a.set_grad({}), b.set_grad({});
        Tensor loss = ddp.forward([&] { return add(sum(mul(a, factor)), sum(mul(b, factor))); });
        scaler.scale(loss).backward();
        for (const auto& optimizer : all) scaler.step(*optimizer);
        out.push_back(count);
        scaler.update();
      }
      all[0]->skip();  // called by the program itself
      out.push_back(count);
      all[0]->skip();  // this backward was already undone
      out.push_back(count);
      return out;
    });
    for (const auto& counts : heard) CHECK(counts == std::vector<int>{0, 1, 1, 2, 2, 3, 3});
  }
}

TEST_CASE("a rank that has run out of inputs forgets a skipped step with the others") {
  constexpr int kBad = 99;
  const auto run = [](const std::vector<int>& of_rank_0, const std::vector<int>& of_rank_1) {
    return run_ranks<Values>(2, [&](const Group& group) {
      Generator g(7);
      const Tensor w = trained(mul(randn({24, 16}, g), 0.3));
      DistributedDataParallel ddp({{"w", w}}, {}, group);
      ddp.register_comm_hook(power_sgd(1, true, true).make(group).hook);
      SGD optimizer({w}, {.lr = 0.01});
      GradScaler scaler;
      ddp.join([&] {
        for (const int step : group->rank() == 0 ? of_rank_0 : of_rank_1) {
          optimizer.zero_grad();
          Generator draw(static_cast<std::uint64_t>(step));
          const Tensor x = randn({24, 16}, draw);
          if (step == kBad) x.data<float>()[7] = INFINITY;
          scaler.update(1024);
          scaler.scale(ddp.forward([&] { return mean(mul(mul(w, w), x)); })).backward();
          if (scaler.step(optimizer) == (step == kBad)) throw Error("the wrong steps are skipped");
        }
      });
      return Values{w.to_vector<float>()};
    });
  };
  for (const auto& [with, without, short_one] :
       {std::array<std::vector<int>, 3>{{{0, 1, 2, 3, kBad, 4, 5}, {0, 1, 2, 3, 4, 5}, {0, 1, 2}}},
        std::array<std::vector<int>, 3>{{{kBad, 0, 1, 2, kBad, 3}, {0, 1, 2, 3}, {}}}}) {
    const auto want = run(without, short_one);
    for (const float v : want[0][0]) REQUIRE(std::isfinite(v));
    CHECK(run(with, short_one) == want);
  }
}
