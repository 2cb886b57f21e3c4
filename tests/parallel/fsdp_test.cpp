// Compares FSDP with DistributedDataParallel: the training is the same, but each rank keeps 1/W of
// it.
#include "runtime/parallel/beyond/fsdp.hpp"

#include <cmath>
#include <map>
#include <optional>

#include "runtime/amp/grad_scaler.hpp"
#include "runtime/autograd/autocast.hpp"
#include "runtime/nn/gpt.hpp"
#include "runtime/parallel/agreement.hpp"
#include "tests/parallel/ranks.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

constexpr std::int64_t kVocabulary = 11, kContext = 6, kRows = 2;  // rows per rank and step

// No unit's size is a multiple of 5, a number of ranks. The tied table is in the root unit.
GPTOptions tiny() {
  return {.vocabulary = kVocabulary,
          .context = kContext,
          .layers = 3,
          .dim = 6,
          .heads = 2,
          .tied = true};
}

std::vector<Module*> blocks_of(const GPT& model) {
  std::vector<Module*> out;
  for (const auto& block : model.blocks) out.push_back(block.get());
  return out;
}

// This thread draws all models, because threads must not share the default generator.
std::vector<std::unique_ptr<GPT>> models(int world, const GPTOptions& options = tiny(),
                                         std::uint64_t seed = 4) {
  std::vector<std::unique_ptr<GPT>> out;
  for (int r = 0; r < world; ++r) {
    manual_seed(seed);
    out.push_back(std::make_unique<GPT>(options));
  }
  return out;
}

Tensor tokens(std::int64_t step, int rank) {
  Generator random(static_cast<std::uint64_t>(100 * step + rank));
  std::vector<std::int64_t> out(kRows * kContext);
  for (std::int64_t& token : out)
    token = static_cast<std::int64_t>(random.uniform_double() * kVocabulary);
  return from_vector(out, {kRows, kContext});
}

Tensor loss_of(const std::function<Tensor(const Tensor&)>& forward, std::int64_t step, int rank) {
  const Tensor logits = forward(tokens(step, rank));
  return cross_entropy(view(logits, {-1, kVocabulary}), tokens(step + 50, rank).view({-1}));
}

using Make = std::function<std::unique_ptr<Optimizer>(std::vector<Tensor>)>;
std::unique_ptr<Optimizer> adamw(std::vector<Tensor> parameters) {
  return std::make_unique<AdamW>(std::move(parameters),
                                 AdamOptions{.lr = 0.02, .weight_decay = 0.1});
}
std::unique_ptr<Optimizer> momentum(std::vector<Tensor> parameters) {
  return std::make_unique<SGD>(
      std::move(parameters),
      SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
}

struct Training {
  std::int64_t from = 0, to = 3;
  std::int64_t accumulate = 1;
  double clip = 0;
};

// The state after training, or the state from which it starts.
struct State {
  StateDict model, optimizer;
};

StateDict copy_of(const StateDict& state) {
  StateDict out;
  for (const auto& [name, t] : state) out[name] = t.clone();
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

double largest_difference(const StateDict& a, const StateDict& b) {
  double worst = 0;
  const Values x = values_of(a), y = values_of(b);
  for (std::size_t p = 0; p < x.size(); ++p)
    for (std::size_t i = 0; i < x[p].size(); ++i) {
      const double d = std::abs(double{x[p][i]} - y[p][i]) / (1 + std::abs(double{y[p][i]}));
      if (!(d <= worst)) worst = std::isnan(d) ? HUGE_VAL : d;
    }
  return worst;
}

template <class Clip>
void train(const std::function<Tensor(const Tensor&)>& forward, Optimizer& optimizer, int rank,
           const Training& t, const Clip& clip) {
  for (std::int64_t step = t.from; step < t.to; ++step) {
    optimizer.zero_grad();
    for (std::int64_t k = 0; k < t.accumulate; ++k)
      loss_of(forward, step + 20 * k, rank).backward();
    if (t.clip > 0) clip(t.clip);
    optimizer.set_lr(0.1 / static_cast<double>(step + 1));
    optimizer.step();
  }
}

std::vector<State> ddp(int world, const Make& make, const Training& t = {},
                       const State* start = nullptr) {
  const auto all = models(world);
  return run_ranks<State>(world, [&](const Group& group) {
    GPT& model = *all[static_cast<std::size_t>(group->rank())];
    if (start != nullptr) model.load_state_dict(start->model);
    DistributedDataParallel ddp(model, group);
    const auto optimizer = make(model.parameters());
    if (start != nullptr) optimizer->load_state_dict(start->optimizer);
    train([&](const Tensor& x) { return ddp.forward(x); }, *optimizer, group->rank(), t,
          [&](double norm) { clip_grad_norm_(model.parameters(), norm); });
    return State{copy_of(model.state_dict()), copy_of(optimizer->state_dict())};
  });
}

std::vector<State> fsdp(int world, const Make& make, const FsdpOptions& options,
                        const Training& t = {}, const State* start = nullptr,
                        const GPTOptions& shape = tiny()) {
  const auto all = models(world, shape);
  return run_ranks<State>(world, [&](const Group& group) {
    GPT& model = *all[static_cast<std::size_t>(group->rank())];
    FullyShardedDataParallel fsdp(model, blocks_of(model), group, options);
    const auto optimizer = make(fsdp.parameters());
    if (start != nullptr) {
      fsdp.load_state_dict(start->model);
      fsdp.load_state_dict(*optimizer, start->optimizer);
    }
    train([&](const Tensor& x) { return fsdp.forward(x); }, *optimizer, group->rank(), t,
          [&](double norm) { fsdp.clip_grad_norm(norm); });
    return State{copy_of(fsdp.state_dict()), copy_of(fsdp.state_dict(*optimizer))};
  });
}

const std::vector<FsdpOptions>& variants() {
  static const std::vector<FsdpOptions> all = {
      {.reshard_after_forward = true, .overlap = Overlap::on},
      {.reshard_after_forward = true, .overlap = Overlap::off},
      {.reshard_after_forward = false, .overlap = Overlap::on},
      {.reshard_after_forward = false, .overlap = Overlap::off}};
  return all;
}

std::string describe(const FsdpOptions& o, int world) {
  return std::string(o.reshard_after_forward ? "ZeRO-3" : "ZeRO-2") +
         (o.overlap == Overlap::on ? ", overlapped, " : ", ") + std::to_string(world) + " ranks";
}

void check_same(const State& got, const State& want) {
  CHECK(names_of(got.model) == names_of(want.model));
  CHECK(names_of(got.optimizer) == names_of(want.optimizer));
  CHECK(values_of(got.model) == values_of(want.model));
  CHECK(values_of(got.optimizer) == values_of(want.optimizer));
}

}  // namespace

TEST_CASE("FSDP has DDP's parameters and optimizer state: bit for bit on 1 and 2 ranks", "[fsdp]") {
  for (const auto& make : {adamw, momentum})
    for (int world = 1; world <= 5; ++world) {
      const State want = ddp(world, make)[0];
      for (const FsdpOptions& options : variants()) {
        INFO(describe(options, world));
        const auto all = fsdp(world, make, options);
        for (const State& got : all) {
          check_same(got, all[0]);
          if (world <= 2) check_same(got, want);
          // Allows for rounding, which Adam amplifies where a gradient is nearly 0.
          CHECK(largest_difference(got.model, want.model) < 1e-4);
          CHECK(largest_difference(got.optimizer, want.optimizer) < 1e-4);
        }
      }
    }
}

TEST_CASE("FSDP clips as DDP does, and each backward adds to the gradients", "[fsdp]") {
  for (const int world : {1, 3})
    for (const FsdpOptions& options : {variants()[0], variants()[2]})
      for (const Training& t : {Training{.clip = 0.3}, Training{.accumulate = 3, .clip = 0}}) {
        INFO(describe(options, world) << ", clip " << t.clip);
        // DDP without no_sync averages each pass and all earlier ones again, so that one process
        // with all batches is the reference.
        const auto reference = models(1);
        const auto optimizer = momentum(reference[0]->parameters());
        for (std::int64_t step = t.from; step < t.to; ++step) {
          optimizer->zero_grad();
          for (std::int64_t k = 0; k < t.accumulate; ++k)
            for (int rank = 0; rank < world; ++rank)
              mul(loss_of([&](const Tensor& x) { return (*reference[0])(x); }, step + 20 * k, rank),
                  1.0 / world)
                  .backward();
          if (t.clip > 0) clip_grad_norm_(reference[0]->parameters(), t.clip);
          optimizer->set_lr(0.1 / static_cast<double>(step + 1));
          optimizer->step();
        }
        for (const State& got : fsdp(world, momentum, options, t))
          CHECK(largest_difference(got.model, reference[0]->state_dict()) < 1e-5);
      }
}

TEST_CASE("whole numbers: the shards' gradients are the exact average on 1 to 5 ranks", "[fsdp]") {
  for (int world = 1; world <= 5; ++world)
    for (const FsdpOptions& options : variants()) {
      INFO(describe(options, world));
      const auto draw = [] {
        auto model = std::make_unique<MLP>(std::vector<std::int64_t>{5, 7, 7, 3});
        std::uint32_t seed = 1;
        for (const Tensor& p : model->parameters()) p.copy_(integers(p.sizes(), seed++));
        return model;
      };
      std::vector<std::unique_ptr<MLP>> all;
      for (int r = 0; r <= world; ++r) all.push_back(draw());
      const auto x = [](int rank) { return integers({4, 5}, static_cast<std::uint32_t>(rank)); };
      // The sum over the ranks, in one process.
      MLP& serial = *all.back();
      for (int r = 0; r < world; ++r) sum(relu(serial(x(r)))).backward();
      StateDict want;
      for (const auto& [name, p] : serial.named_parameters()) want[name] = p.grad();
      const auto got = run_ranks<StateDict>(world, [&](const Group& group) {
        MLP& model = *all[static_cast<std::size_t>(group->rank())];
        FullyShardedDataParallel fsdp(model, {&model[0], &model[2]}, group, options);
        // A factor of W makes the average the sum.
        mul(sum(relu(fsdp.forward(x(group->rank())))), world).backward();
        for (const Tensor& shard : fsdp.parameters()) shard.copy_(shard.grad());
        return copy_of(fsdp.state_dict());
      });
      for (const StateDict& state : got)
        for (const auto& [name, t] : state) {
          INFO(name);
          CHECK(t.to_vector<float>() == want.at(name).to_vector<float>());
        }
    }
}

TEST_CASE("activation checkpointing runs units again, with the same bits", "[fsdp]") {
  GPTOptions again = tiny();
  again.activation_checkpointing = true;
  for (const int world : {1, 3})
    for (const FsdpOptions& options : variants()) {
      INFO(describe(options, world));
      check_same(fsdp(world, adamw, options, {}, nullptr, again)[0],
                 fsdp(world, adamw, options)[0]);
    }
}

TEST_CASE("a unit that is used twice, not at all, or only in part", "[fsdp]") {
  class Odd : public Module {
   public:
    Odd() : twice(4, 4), never(4, 4), last(4, 2) {
      register_module("twice", twice);
      register_module("never", never);
      register_module("part", part);
      register_module("last", last);
    }
    Tensor forward(const Tensor& x) override { return last(part(relu(twice(relu(twice(x)))))); }
    class Part : public Module {
     public:
      Part() : used(4, 4), unused(4, 4) {
        register_module("used", used);
        register_module("unused", unused);
      }
      Tensor forward(const Tensor& x) override { return used(x); }
      Linear used, unused;
    };
    Linear twice, never;
    Part part;
    Linear last;
  };
  for (const int world : {1, 2})
    for (const FsdpOptions& options : variants()) {
      INFO(describe(options, world));
      std::vector<std::unique_ptr<Odd>> all;
      for (int r = 0; r <= world; ++r) {
        manual_seed(7);
        all.push_back(std::make_unique<Odd>());
      }
      const Tensor x = integers({3, 4}, 1), y = integers({3, 2}, 2);  // the same on all ranks
      Odd& serial = *all.back();
      const auto optimizer = momentum(serial.parameters());
      for (int step = 0; step < 3; ++step) {
        optimizer->zero_grad();
        mse_loss(serial(x), y).backward();
        optimizer->step();
      }
      const auto got = run_ranks<StateDict>(world, [&](const Group& group) {
        Odd& model = *all[static_cast<std::size_t>(group->rank())];
        FullyShardedDataParallel fsdp(model, {&model.twice, &model.never, &model.part}, group,
                                      options);
        const auto sharded = momentum(fsdp.parameters());
        for (int step = 0; step < 3; ++step) {
          sharded->zero_grad();
          mse_loss(fsdp.forward(x), y).backward();
          sharded->step();
        }
        return copy_of(fsdp.state_dict());
      });
      const StateDict want = serial.state_dict();
      for (const StateDict& state : got)
        for (const auto& [name, t] : state) {
          INFO(name);
          if (name.starts_with("part.unused")) continue;  // FSDP decays it: its gradient is 0
          CHECK(t.to_vector<float>() == want.at(name).to_vector<float>());
        }
    }
}

TEST_CASE("evaluation: between forward and backward, and on one rank inside whole()", "[fsdp]") {
  for (const FsdpOptions& options : variants()) {
    INFO(describe(options, 2));
    const auto all = models(2);
    const auto reference = models(1);
    const auto plain = momentum(reference[0]->parameters());
    std::vector<float> want;
    for (std::int64_t step = 0; step < 2; ++step) {
      plain->zero_grad();
      loss_of([&](const Tensor& t) { return (*reference[0])(t); }, 0, 0).backward();
      plain->step();
      const NoGradGuard no_grad;
      want = (*reference[0])(tokens(9, 0)).to_vector<float>();
    }
    const auto got = run_ranks<Values>(2, [&](const Group& group) {
      GPT& model = *all[static_cast<std::size_t>(group->rank())];
      FullyShardedDataParallel fsdp(model, blocks_of(model), group, options);
      const auto optimizer = momentum(fsdp.parameters());
      const auto evaluate = [&] {
        const NoGradGuard no_grad;
        return model(tokens(9, 0)).to_vector<float>();
      };
      Values out;
      for (std::int64_t step = 0; step < 2; ++step) {
        optimizer->zero_grad();
        const Tensor loss = loss_of([&](const Tensor& t) { return fsdp.forward(t); }, 0, 0);
        (void)evaluate();
        loss.backward();
        optimizer->step();
        out = {evaluate()};
      }
      const Bytes before = fsdp.parameter_bytes();
      {
        const auto whole = fsdp.whole();
        if (group->rank() == 1) out.push_back(evaluate());
        out.push_back(model.tok.weight.to_vector<float>());
      }
      out.push_back({before == fsdp.parameter_bytes() ? 1.0F : 0.0F});
      return out;
    });
    for (std::size_t r = 0; r < got.size(); ++r) {
      CHECK(got[r] == (r == 1 ? Values{want, want, reference[0]->tok.weight.to_vector<float>(), {1}}
                              : Values{want, reference[0]->tok.weight.to_vector<float>(), {1}}));
    }
  }
}

TEST_CASE("state of N ranks, whole and in shards, continues on M ranks", "[fsdp]") {
  for (int from = 1; from <= 5; ++from) {
    struct Saved {
      State whole;
      StateDict shards;
    };
    const auto all = models(from);
    const auto saved = run_ranks<Saved>(from, [&](const Group& group) {
      GPT& model = *all[static_cast<std::size_t>(group->rank())];
      FullyShardedDataParallel fsdp(model, blocks_of(model), group);
      const auto optimizer = adamw(fsdp.parameters());
      train([&](const Tensor& x) { return fsdp.forward(x); }, *optimizer, group->rank(), {.to = 2},
            [](double) {});
      return Saved{{copy_of(fsdp.state_dict()), copy_of(fsdp.state_dict(*optimizer))},
                   copy_of(fsdp.shards(*optimizer))};
    });
    const State& whole = saved[0].whole;
    for (int to = 1; to <= 5; ++to) {
      INFO(from << " ranks, then " << to);
      const auto others = models(to, tiny(), 99);  // with other values
      const auto loaded = run_ranks<State>(to, [&](const Group& group) {
        GPT& model = *others[static_cast<std::size_t>(group->rank())];
        FullyShardedDataParallel fsdp(model, blocks_of(model), group);
        const auto optimizer = adamw(fsdp.parameters());
        fsdp.load_shards(*optimizer, from, [&](int rank) {
          return copy_of(saved[static_cast<std::size_t>(rank)].shards);
        });
        return State{copy_of(fsdp.state_dict()), copy_of(fsdp.state_dict(*optimizer))};
      });
      for (const State& got : loaded) check_same(got, whole);
      const Training rest{.from = 2, .to = 4};
      const State want = ddp(to, adamw, rest, &whole)[0];
      for (const State& got : fsdp(to, adamw, {}, rest, &whole)) {
        if (to <= 2) check_same(got, want);
        CHECK(largest_difference(got.model, want.model) < 1e-4);
      }
    }
  }
}

TEST_CASE("GradScaler skips a step of all ranks if one rank's shard is infinite", "[fsdp]") {
  for (const int world : {1, 3}) {
    const auto all = models(world);
    const auto got = run_ranks<Values>(world, [&](const Group& group) {
      GPT& model = *all[static_cast<std::size_t>(group->rank())];
      FullyShardedDataParallel fsdp(model, blocks_of(model), group);
      const auto optimizer = momentum(fsdp.parameters());
      GradScaler scaler({.init_scale = 1024, .any_rank = any_rank(group)});
      std::vector<float> made;
      for (std::int64_t step = 0; step < 3; ++step) {
        optimizer->zero_grad();
        scaler.scale(loss_of([&](const Tensor& x) { return fsdp.forward(x); }, step, group->rank()))
            .backward();
        if (step == 1 && group->rank() == world - 1) fsdp.parameters()[1].grad().fill_(INFINITY);
        scaler.unscale_(*optimizer);
        made.push_back(scaler.step(*optimizer) ? 1 : 0);
        scaler.update();
      }
      return Values{made};
    });
    for (const Values& each : got) CHECK(each == Values{{1, 0, 1}});
  }
}

TEST_CASE("mixed precision: f32 shards, 16-bit units, and in bf16 the same bits on 1 and 2 ranks",
          "[fsdp]") {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const bool reshard : {true, false}) {
      INFO(name_of(dtype) << (reshard ? ", ZeRO-3" : ", ZeRO-2"));
      const auto body = [&](int world) {
        const auto all = models(world);
        return run_ranks<State>(world, [&](const Group& group) {
          GPT& model = *all[static_cast<std::size_t>(group->rank())];
          const std::vector<Tensor> before = model.parameters();
          FullyShardedDataParallel fsdp(model, blocks_of(model), group,
                                        {.reshard_after_forward = reshard, .dtype = dtype});
          require(model.parameters()[0].dtype() == dtype && before[0].storage()->is_released(),
                  "the parameters were not replaced");
          const auto optimizer = momentum(fsdp.parameters());
          train(
              [&](const Tensor& x) {
                const Autocast autocast(dtype);
                return to(fsdp.forward(x), DType::f32);
              },
              *optimizer, /*rank=*/0, {.to = 4}, [](double) {});
          return State{copy_of(fsdp.state_dict()), copy_of(fsdp.state_dict(*optimizer))};
        });
      };
      const State alone = body(1)[0], f32 = ddp(1, momentum, {.to = 4})[0];
      for (const State& got : body(2)) {
        if (dtype == DType::bf16) check_same(got, alone);
        // Halves of subnormal f16 gradients are rounded.
        CHECK(largest_difference(got.model, alone.model) < 1e-4);
      }
      for (const auto& [name, t] : alone.model) CHECK(t.dtype() == DType::f32);
      const double difference = largest_difference(alone.model, f32.model);
      CHECK(difference > 0);
      CHECK(difference < 0.01);
    }
}

TEST_CASE("in a step DDP and ZeRO-2 send twice, ZeRO-3 three times (W-1)/W of the parameters",
          "[fsdp]") {
  enum class Kind { ddp, zero2, zero3 };
  for (const int world : {2, 3, 4})
    for (const Kind kind : {Kind::ddp, Kind::zero2, Kind::zero3}) {
      const std::int64_t width = 120;
      std::vector<std::unique_ptr<MLP>> all;
      for (int r = 0; r < world; ++r)
        all.push_back(
            std::make_unique<MLP>(std::vector<std::int64_t>{width, width, width, width, width}));
      // Every rank counts as a node, so that the transport counts all bytes.
      comm::GroupOptions nodes;
      nodes.algorithm = comm::Algorithm::ring;
      nodes.ranks_per_node = 1;
      const auto sent = run_threads<double>(
          world,
          [&](comm::ProcessGroup& own) {
            const Group group(std::shared_ptr<void>(), &own);
            MLP& model = *all[static_cast<std::size_t>(own.rank())];
            const auto step = [&](const auto& forward) {
              const Bytes before = own.sent_between_nodes();
              for (int k = 0; k < 2; ++k) sum(forward(ones({1, width}))).backward();
              return static_cast<double>((own.sent_between_nodes() - before).value) / 2;
            };
            if (kind == Kind::ddp) {
              DistributedDataParallel ddp(model, group);
              return step([&](const Tensor& x) { return ddp.forward(x); });
            }
            FullyShardedDataParallel fsdp(model, {&model[0], &model[2], &model[4]}, group,
                                          {.reshard_after_forward = kind == Kind::zero3});
            return step([&](const Tensor& x) { return fsdp.forward(x); });
          },
          nodes);
      double mean = 0;
      for (const double bytes : sent) mean += bytes / world;
      const double parameters = 4.0 * static_cast<double>(4 * (width * width + width));
      const double times = kind == Kind::zero3 ? 3 : 2;
      INFO("kind " << static_cast<int>(kind) << ", " << world << " ranks: " << mean << " bytes");
      CHECK(mean / (times * parameters * (world - 1) / world) > 1);  // control data, too
      CHECK(mean / (times * parameters * (world - 1) / world) < 1.03);
    }
}
