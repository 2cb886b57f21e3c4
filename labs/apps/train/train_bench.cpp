// train_bench: the median times of a training step and its parts, on synthetic data for the models
// of tests/bench/peers. Prints results in the format of torch_common.py there, so that one parser
// reads the output of both.
#include <algorithm>
#include <cmath>
#include <cuda_profiler_api.h>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <vector>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"
#include "labs/apps/train/data.hpp"
#include "labs/apps/train/options.hpp"
#include "runtime/autograd/autocast.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/base/tracer.hpp"
#include "runtime/device/cuda_check.hpp"
#include "runtime/nn/resnet.hpp"
#include "runtime/optim/step_graph.hpp"
#include "runtime/parallel/drift.hpp"

namespace ringsmith::apps {
namespace {

struct BenchOptions {
  MachineOptions machine;
  std::string model;
  std::int64_t batch = 0, steps = 0, warmup = -1;  // if not given, the model's defaults
  std::uint64_t seed = 0;
  std::string amp = "off";
  bool graph = false;
  GPTOptions gpt;
};

struct Subject {
  const char* unit;
  double units;  // per rank and step
  std::unique_ptr<Module> model;
  std::unique_ptr<Optimizer> optimizer;
  Tensor (*loss)(const Tensor& outputs, const Tensor& targets);
  std::vector<Batch> batches;
};

constexpr int kBatches = 4;

Subject make_gpt(const BenchOptions& o, Device device, Generator& random) {
  auto model = std::make_unique<GPT>(o.gpt);
  model->to(device);
  auto optimizer =
      std::make_unique<AdamW>(model->parameters(), AdamOptions{.lr = 3e-4, .weight_decay = 1e-2});
  const std::int64_t context = o.gpt.context;
  Subject s{"tokens",         static_cast<double>(o.batch * context),
            std::move(model), std::move(optimizer),
            next_byte_loss,   {}};
  for (int i = 0; i < kBatches; ++i) {
    std::vector<std::int64_t> tokens;
    for (std::int64_t n = 0; n < o.batch * (context + 1); ++n)
      tokens.push_back(randint(0, o.gpt.vocabulary, random));
    const Tensor all = from_vector(tokens, {o.batch, context + 1});
    s.batches.push_back(
        Batch{all.slice(1, 0, context).contiguous(), all.slice(1, 1, context + 1).contiguous()}.to(
            device));
  }
  return s;
}

// image: shape of one image.
Subject make_classifier(const BenchOptions& o, Device device, Generator& random, const Shape& image,
                        std::unique_ptr<Module> model) {
  constexpr std::int64_t kClasses = 10;
  model->to(device);
  auto optimizer =
      std::make_unique<SGD>(model->parameters(), SGDOptions{.lr = 0.01, .momentum = 0.9});
  Subject s{"samples",
            static_cast<double>(o.batch),
            std::move(model),
            std::move(optimizer),
            [](const Tensor& x, const Tensor& y) { return cross_entropy(x, y); },
            {}};
  Shape shape{o.batch};
  shape.insert(shape.end(), image.begin(), image.end());
  for (int i = 0; i < kBatches; ++i) {
    const Tensor images = randn(shape, random);
    std::vector<std::int64_t> labels;
    for (std::int64_t n = 0; n < o.batch; ++n) labels.push_back(randint(0, kClasses, random));
    s.batches.push_back(Batch{images, from_vector(labels)}.to(device));
  }
  return s;
}

Subject make_subject(const BenchOptions& o, Device device, Generator& random) {
  if (o.model == "gpt") return make_gpt(o, device, random);
  if (o.model == "mlp")
    return make_classifier(o, device, random, {784},
                           std::make_unique<MLP>(std::vector<std::int64_t>{784, 1024, 1024, 10}));
  if (o.model == "small_cnn")
    return make_classifier(o, device, random, {1, 28, 28},
                           std::make_unique<SmallCNN>(1, 28, 28, 10));
  return make_classifier(
      o, device, random, {3, 32, 32},
      std::make_unique<ResNet>(ResNetOptions{.depth = 18, .classes = 10, .small_stem = true}));
}

struct Defaults {
  std::int64_t batch, steps, warmup;
};
Defaults defaults_of(const std::string& model) {
  if (model == "gpt") return {16, 15, 3};
  if (model == "mlp") return {64, 100, 10};
  if (model == "small_cnn") return {32, 40, 5};
  return {32, 6, 2};
}

double now_ms(Device device) {
  synchronize(device);
  return static_cast<double>(trace::now_ns()) / 1e6;
}

// Returns the maximum of each value over the ranks.
std::vector<double> slowest(comm::ProcessGroup& group, const std::vector<double>& mine) {
  std::vector<double> out = mine;
  for (const auto& row : gather_rows(group, mine))
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::max(out[i], row[i]);
  return out;
}

void check_graph(const BenchOptions& o, bool many) {
  if (!o.graph) return;
  require(o.model == "gpt", "--graph is for the GPT, whose optimizer is AdamW: train_bench gpt");
  require(o.machine.device != "cpu", "--graph needs a GPU: add --device cuda");
  require(!many, "--graph is for one rank: a graph cannot repeat collectives");
  require(o.gpt.dropout == 0,
          "--graph cannot be combined with --dropout: each replay would drop "
          "the same activations");
  require(o.warmup + o.steps > StepGraph::kEagerSteps,
          "--graph captures the third step: --warmup and --steps must be at least 3 together");
}

// Collective. Returns the line of results, which is the same on every rank.
std::string bench(const BenchOptions& o, const std::shared_ptr<comm::ProcessGroup>& group) {
  manual_seed(o.seed);
  const Device device = device_of_rank(o.machine.device);
  Generator random(1000 + static_cast<std::uint64_t>(group->rank()));
  Subject s = make_subject(o, device, random);
  const bool many = group->size() > 1;
  together(*group, [&] { check_graph(o, many); });
  std::optional<DistributedDataParallel> ddp;
  if (many) {
    ddp.emplace(*s.model, group, ddp_options(o.machine));
    register_comm_hook(o.machine, *ddp, group);
  }
  const auto forward_pass = [&](const Batch& batch) {
    const Autocast autocast(DType::bf16, o.amp == "bf16");
    return s.loss(ddp ? ddp->forward(batch.inputs) : s.model->forward(batch.inputs), batch.targets);
  };

  std::optional<StepGraph> graph;
  if (o.graph)
    graph.emplace(*s.optimizer, [&](const std::vector<Tensor>& batch) {
      s.optimizer->zero_grad();
      const Tensor loss = forward_pass({batch[0], batch[1]});
      loss.backward();
      s.optimizer->step();
      return loss;
    });

  std::vector<double> forward, backward, update, step, alone;
  double first = 0, last = 0;
  for (std::int64_t i = 0; i < o.warmup + o.steps; ++i) {
    const Batch& batch = s.batches[static_cast<std::size_t>(i % kBatches)];
    const double t0 = now_ms(device);
    // ncu --profile-from-start off sees the last step (tests/gpu/profile.py).
    if (device.is_cuda() && i + 1 == o.warmup + o.steps) cuda_check(cudaProfilerStart());
    Tensor loss;
    double t1 = t0, t2 = t0;
    if (graph) {
      loss = (*graph)({batch.inputs, batch.targets});
    } else {
      s.optimizer->zero_grad();
      loss = forward_pass(batch);
      t1 = now_ms(device);
      loss.backward();
      t2 = now_ms(device);
      s.optimizer->step();
    }
    const double t3 = now_ms(device);
    last = loss.item<float>();
    if (i == 0) first = last;
    const bool counts = i >= o.warmup;
    if (counts) {
      forward.push_back(t1 - t0);
      backward.push_back(t2 - t1);
      update.push_back(t3 - t2);
      step.push_back(t3 - t0);
    }
    if (many) {
      const auto guard = ddp->no_sync();
      loss = forward_pass(batch);
      const double t4 = now_ms(device);
      loss.backward();
      if (counts) alone.push_back(now_ms(device) - t4);
    }
  }
  const auto ms = slowest(
      *group, {median(forward), median(backward), median(update), median(step), median(alone)});
  check_drift(*group, s.model->named_parameters());
  together(*group, [&] {
    if (!std::isfinite(last))
      throw Error(
          fmt::format("the loss is {}: these steps train nothing; try --comm-hook none "
                      "and --amp off",
                      last));
  });
  const std::int64_t parameters = parameter_count(*s.model);
  std::string line = fmt::format(
      "{}: procs {} threads {} batch/proc {} params {} ({:.2f} MiB) | {:.0f} {}/s | ms/step {:.2f}",
      o.model, group->size(), o.machine.threads, o.batch, parameters,
      static_cast<double>(parameters) * 4 / (1 << 20), s.units * group->size() / ms[3] * 1e3,
      s.unit, ms[3]);
  line += graph ? fmt::format(" in a graph of {} operations", graph->graph().nodes())
                : fmt::format(" = fwd {:.2f} + bwd {:.2f} + opt {:.2f}", ms[0], ms[1], ms[2]);
  if (many) line += fmt::format(" | bwd without comm {:.2f}", ms[4]);
  return line + fmt::format(" | loss {:.4f} -> {:.4f}", first, last);
}

bool read_options(BenchOptions& o, int argc, char** argv) {
  o.gpt.vocabulary = 65;
  CommandLine app(
      "Measures a training step and its parts: medians, on synthetic data; writes no files.",
      "train_bench");
  app.add_option("model", o.model, "gpt, mlp, small_cnn or resnet18, as in tests/bench/peers")
      ->required()
      ->check(one_of({"gpt", "mlp", "small_cnn", "resnet18"}));
  app.group("Benchmark");
  app.add_option("--batch", o.batch, "samples per step and rank [gpt 16, mlp 64, others 32]")
      ->default_text("")
      ->check(whole(1));
  app.add_option("--steps", o.steps, "measured steps [gpt 15, mlp 100, small_cnn 40, resnet18 6]")
      ->default_text("")
      ->check(whole(1));
  app.add_option("--warmup", o.warmup,
                 "warm-up steps before them [gpt 3, mlp 10, small_cnn 5, resnet18 2]")
      ->default_text("")
      ->check(whole(0));
  app.add_option("--seed", o.seed, "seed of the parameters");
  app.add_option("--amp", o.amp, "bf16: products and attention in bfloat16")
      ->check(one_of({"off", "bf16"}));
  app.add_flag("--graph", o.graph,
               "gpt on one GPU: launch the step as a CUDA graph, captured in the third step");
  app.group("GPT");
  const std::vector<Option*> of_gpt{
      app.add_option("--layers", o.gpt.layers, "transformer blocks")->check(whole(1, 1000)),
      app.add_option("--dim", o.gpt.dim, "width; a multiple of --heads")->check(whole(1)),
      app.add_option("--heads", o.gpt.heads, "attention heads")->check(whole(1, 1000)),
      app.add_option("--context", o.gpt.context, "tokens that the model sees at a time")
          ->check(whole(1)),
      app.add_option("--vocabulary", o.gpt.vocabulary, "number of different tokens")
          ->check(whole(2, 1 << 20)),
      app.add_option("--pad-vocabulary", o.gpt.vocabulary_multiple,
                     "round the head's rows up to a multiple of this")
          ->check(whole(1, 65536)),
      app.add_option("--dropout", o.gpt.dropout, "probability of dropping an activation")
          ->check(real(0, 0.99))};
  add_machine_options(app, o.machine);
  if (!app.parse(argc, argv)) return false;
  const bool gpt = o.model == "gpt";
  for (const Option* option : of_gpt)
    require(gpt || !option->given(), option->name() + " is for the GPT: train_bench gpt");
  const Defaults defaults = defaults_of(o.model);
  if (o.batch == 0) o.batch = defaults.batch;
  if (o.steps == 0) o.steps = defaults.steps;
  if (o.warmup < 0) o.warmup = defaults.warmup;
  return true;
}

int train_bench(int argc, char** argv) {
  BenchOptions o;
  if (!read_options(o, argc, argv)) return 0;
  const auto group = start(o.machine);
  const std::string line = bench(o, group);
  if (group->rank() == 0) fmt::print("{}\n", line);
  return 0;
}

}  // namespace
}  // namespace ringsmith::apps

int main(int argc, char** argv) {
  return ringsmith::apps::run_program("train_bench",
                                      [&] { return ringsmith::apps::train_bench(argc, argv); });
}
