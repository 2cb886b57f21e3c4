// train_gpt: the main job. A byte-level GPT, trained on this repository's own lessons and sources
// or any other text, data-parallel over all ranks of its launcher.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <optional>
#include <vector>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/batches.hpp"
#include "labs/apps/common/bench.hpp"
#include "labs/apps/common/command_line.hpp"
#include "labs/apps/common/finish.hpp"
#include "labs/apps/common/language.hpp"
#include "labs/apps/common/number.hpp"
#include "labs/apps/common/options.hpp"
#include "labs/apps/common/train_loop.hpp"
#include "runtime/nn/gpt.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/optim/schedule.hpp"
#include "runtime/parallel/ddp.hpp"
#include "runtime/tensor/factory.hpp"

namespace ringsmith::apps {
namespace {

constexpr std::int64_t kDefaultSteps = 800;

struct GptOptions {
  TrainOptions common;
  GPTOptions model;
  double weight_decay = 0.1;
  double clip = 1.0;
  double warmup = 0.05;  // share of the steps
  double floor = 0.1;    // of the learning rate, as a share of its peak
  std::int64_t validation_windows = 512;
  GenerateOptions sample{.tokens = 400, .context = 128, .temperature = 0.8, .top_k = 0};
  std::string prompt = "// ";
  int workers = 0;
  std::int64_t bench_vocabulary = 65;
};

int run_bench(const GptOptions& o, const std::shared_ptr<comm::ProcessGroup>& group) {
  constexpr int kBatches = 4;
  GPTOptions shape = o.model;
  shape.vocabulary = o.bench_vocabulary;
  shape.gpt2_init = false;
  manual_seed(o.common.seed);
  GPT model(shape);
  const Device device = device_of_rank(o.common);
  model.to(device);
  std::optional<DistributedDataParallel> ddp;
  if (group->size() > 1) ddp.emplace(model, group, ddp_options(o.common));
  AdamW optimizer(model.parameters(), {.lr = 3e-4, .weight_decay = 1e-2});
  Generator generator(1000 + static_cast<std::uint64_t>(group->rank()));
  std::vector<Batch> data;
  for (int i = 0; i < kBatches; ++i) {
    std::vector<std::int64_t> tokens;
    for (std::int64_t n = 0; n < o.common.bench_batch * (shape.context + 1); ++n)
      tokens.push_back(randint(0, shape.vocabulary, generator));
    const Tensor all = from_vector(tokens, {o.common.bench_batch, shape.context + 1});
    data.push_back(Batch{all.slice(1, 0, shape.context).contiguous(),
                         all.slice(1, 1, shape.context + 1).contiguous()}
                       .to(device));
  }

  const Batch* batch = nullptr;
  BenchRecipe recipe;
  recipe.name = "gpt";
  recipe.unit = "tokens";
  recipe.warmup = o.common.bench_warmup;
  recipe.steps = o.common.bench_steps;
  recipe.batch = o.common.bench_batch;
  recipe.units_per_rank_step = static_cast<double>(o.common.bench_batch * shape.context);
  recipe.parameters = parameter_count(model);
  recipe.threads = o.common.threads;
  recipe.device = device;
  recipe.fetch = [&](std::int64_t step) {
    batch = &data[static_cast<std::size_t>(step % kBatches)];
  };
  recipe.zero_grad = [&] { optimizer.zero_grad(); };
  recipe.forward = [&] {
    return next_byte_loss(ddp ? ddp->forward(batch->inputs) : model.forward(batch->inputs),
                          batch->targets);
  };
  recipe.update = [&] { optimizer.step(); };
  recipe.without_sync = [&](const std::function<void()>& body) {
    const auto guard = ddp->no_sync();
    body();
  };
  say(o.common, *group, bench(*group, recipe));
  return 0;
}

bool read_options(GptOptions& o, int argc, char** argv) {
  o.model.gpt2_init = true;
  o.common.batch = 8;
  o.common.lr = 3e-3;
  o.common.bench_batch = 16;
  o.common.bench_steps = 15;
  o.common.bench_warmup = 3;
  CLI::App app("Trains a byte-level GPT, data-parallel over all ranks.", "train_gpt");
  app.add_option("--data", o.common.data,
                 "text file; its last tenth is held out [the lessons and sources of ringsmith, the "
                 "last tenth of each file held out]")
      ->group("Data");
  app.option_defaults()->always_capture_default()->take_last();
  app.add_option("--workers", o.workers,
                 "threads that prepare batches ahead; 0 is enough for data in memory")
      ->check(whole(0, 64))
      ->group("Data");
  app.add_option("--validation-windows", o.validation_windows,
                 "most windows of held-out text that are evaluated at the end")
      ->check(whole(1))
      ->group("Data");
  app.add_option("--layers", o.model.layers, "transformer blocks")
      ->check(whole(1, 1000))
      ->group("Model");
  app.add_option("--dim", o.model.dim, "width; a multiple of --heads")
      ->check(whole(1))
      ->group("Model");
  app.add_option("--heads", o.model.heads, "attention heads")
      ->check(whole(1, 1000))
      ->group("Model");
  app.add_option("--context", o.model.context, "bytes that the model sees")
      ->check(whole(1))
      ->group("Model");
  app.add_option("--dropout", o.model.dropout, "probability of dropping an activation")
      ->check(real(0, 0.99))
      ->group("Model");
  app.add_option("--weight-decay", o.weight_decay, "of AdamW")
      ->check(real(0, 1e6))
      ->group("Training");
  app.add_option("--clip", o.clip, "largest 2-norm of the gradient")
      ->check(above_zero(1e30))
      ->group("Training");
  app.add_option("--warmup", o.warmup, "share of the steps in which the learning rate rises")
      ->check(real(0, 1))
      ->group("Training");
  app.add_option("--lr-floor", o.floor, "learning rate of the last step, as a share of --lr")
      ->check(real(0, 1))
      ->group("Training");
  app.add_option("--sample", o.sample.tokens, "bytes to write at the end")
      ->check(whole(0))
      ->group("Output");
  app.add_option("--prompt", o.prompt, "what they follow")->group("Output");
  app.add_option("--temperature", o.sample.temperature, "of their choice; 0: always the likeliest")
      ->check(real(0, 1e6))
      ->group("Output");
  add_train_options(app, o.common, std::to_string(kDefaultSteps));
  app.add_option("--bench-vocabulary", o.bench_vocabulary, "different tokens of the synthetic data")
      ->check(whole(2, 1 << 20))
      ->group("Benchmark");
  return parse_command_line(app, argc, argv);
}

int train_gpt(int argc, char** argv) {
  GptOptions o;
  if (!read_options(o, argc, argv)) return 0;
  o.sample.context = o.model.context;
  const TrainOptions& common = o.common;
  const auto group = start(common);
  if (common.bench) return run_bench(o, group);

  StepClock clock(!common.no_trace);
  Corpus corpus;
  std::int64_t batch = 0;
  std::optional<Batches> batches;
  std::optional<GPT> model;
  Device device;
  together(*group, [&] {
    batch = batch_per_rank(common, group->size());
    corpus = load_corpus(common.data, o.model.context);
    batches.emplace(*corpus.train, *group, batch, common.seed, o.workers);
    require(!o.prompt.empty() || o.sample.tokens == 0, "--prompt is empty; give at least one byte");
    manual_seed(common.seed);
    model.emplace(o.model);
    device = device_of_rank(common);
    model->to(device);
  });
  RunFiles files = open_run_files(*group, common);

  DistributedDataParallel ddp(*model, group, ddp_options(common));
  // Every rank drops other activations; the parameters above are the same on all.
  manual_seed(common.seed + 1 + static_cast<std::uint64_t>(group->rank()));
  AdamW optimizer(model->parameters(),
                  {.lr = common.lr, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = o.weight_decay});

  Recipe recipe;
  recipe.device = device;
  const std::int64_t tokens_per_step = batch * group->size() * o.model.context;
  recipe.steps = steps_of(common, std::max<std::int64_t>(1, corpus.train_bytes / tokens_per_step),
                          kDefaultSteps);
  recipe.unit = "tokens";
  recipe.units_per_step = static_cast<double>(tokens_per_step);
  const auto warmup = static_cast<std::int64_t>(o.warmup * static_cast<double>(recipe.steps));
  const LrSchedule schedule = cosine_lr(common.lr, warmup, recipe.steps, o.floor * common.lr);
  Batch current;
  recipe.fetch = [&] { current = batches->next().to(device); };
  recipe.forward = [&] {
    optimizer.zero_grad();
    return next_byte_loss(ddp.forward(current.inputs), current.targets);
  };
  recipe.update = [&](std::int64_t step) {
    clip_grad_norm_(optimizer.params(), o.clip);
    optimizer.set_lr(schedule(step - 1));
    optimizer.step();
    return optimizer.lr();
  };
  say(common, *group,
      fmt::format(
          "train_gpt: {} ({:.0f} KB to train, {:.0f} KB held out)\n{} parameters, {} rank(s) "
          "x batch {} x {} bytes, {} steps; files go to {}",
          corpus.origin, static_cast<double>(corpus.train_bytes) / 1e3,
          static_cast<double>(corpus.held_out_bytes) / 1e3, parameter_count(*model), group->size(),
          batch, o.model.context, recipe.steps, files.folder));

  Ending ending;
  ending.device = device;
  ending.result = train(*group, common, recipe, files, clock);
  const double nats = validate(*group, *model, *corpus.held_out, o.validation_windows);
  ending.units_per_step = recipe.units_per_step;
  ending.unit = recipe.unit;
  ending.headline = fmt::format("validation loss {:.4f} nats/byte ({:.3f} bits) on held-out text",
                                nats, nats / std::log(2.0));
  ending.figures = {{"validation_nats_per_byte", nats}};
  if (o.sample.tokens > 0 && group->rank() == 0)
    ending.headline += "\n---- a sample ----\n" +
                       sample_text(*model, o.prompt, o.sample, common.seed) +
                       "\n------------------";
  ending.model = model->state_dict();
  ending.metadata = {{"program", "train_gpt"},
                     {"layers", std::to_string(o.model.layers)},
                     {"heads", std::to_string(o.model.heads)},
                     {"seed", std::to_string(common.seed)}};
  finish_run(*group, common, files, clock, ending);
  return 0;
}

}  // namespace
}  // namespace ringsmith::apps

int main(int argc, char** argv) {
  return ringsmith::apps::run_program("train_gpt",
                                      [&] { return ringsmith::apps::train_gpt(argc, argv); });
}
