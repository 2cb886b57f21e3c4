#include "labs/apps/train/gpt_program.hpp"

#include <cmath>
#include <fmt/format.h>
#include <span>

#include "labs/apps/common/command_line.hpp"
#include "runtime/parallel/agreement.hpp"

namespace ringsmith::apps {

namespace {
constexpr std::int64_t kEvaluationBatch = 16;  // windows
}  // namespace

bool read_options(GptOptions& o, int argc, char** argv) {
  o.model.gpt2_init = true;
  o.common.batch = 8;
  o.common.lr = 3e-3;
  CommandLine app("Trains a GPT on text, data-parallel over all ranks.", "train_gpt");
  app.group("Data");
  auto* text = app.add_option(
      "--data", o.common.data,
      "text file; its last tenth is held out [the lessons and sources of ringsmith, the last tenth "
      "of each file held out]");
  app.add_option("--tokens", o.tokens,
                 "text as tokens instead: a .bin file of llm.c, or a folder of them; files with "
                 "'val' in their names are held out, otherwise the last tenth of each")
      ->default_text("")
      ->excludes(text);
  app.add_option(
         "--vocab", o.vocabulary,
         "byte-pair vocabulary, a file in tiktoken's format (r50k_base.tiktoken is GPT-2's): "
         "text is read and written in its tokens, not in bytes")
      ->default_text("");
  app.add_option("--workers", o.workers,
                 "threads that prepare batches ahead; 0 is enough for data in memory")
      ->check(whole(0, 64));
  app.add_option("--validation-windows", o.validation_windows,
                 "maximum number of windows of held-out text in an evaluation")
      ->check(whole(1));
  app.group("Model");
  app.add_option("--layers", o.model.layers, "transformer blocks")->check(whole(1, 1000));
  app.add_option("--dim", o.model.dim, "width; a multiple of --heads")->check(whole(1));
  app.add_option("--heads", o.model.heads, "attention heads")->check(whole(1, 1000));
  app.add_option("--context", o.model.context, "bytes or tokens that the model sees at a time")
      ->check(whole(1));
  app.add_option("--dropout", o.model.dropout, "probability of dropping an activation")
      ->check(real(0, 0.99));
  app.add_flag("--tie-head", o.model.tied,
               "use the token table as the head's weight, too: fewer parameters");
  app.add_option("--pad-vocabulary", o.model.vocabulary_multiple,
                 "round the head's rows up to a multiple of this, the last ones unused: 128 suits "
                 "tensor cores")
      ->check(whole(1, 65536));
  app.add_flag("--activation-checkpointing", o.model.activation_checkpointing,
               "keep only the input of each block, and recompute the block in backward: less "
               "memory, a third more computation, the same numbers");
  app.group("Training");
  app.add_option("--weight-decay", o.weight_decay, "weight decay of AdamW")->check(real(0, 1e6));
  app.add_option("--clip", o.clip, "largest 2-norm of the gradient")->check(above_zero(1e30));
  app.add_option("--warmup", o.warmup, "share of the steps in which the learning rate rises")
      ->check(real(0, 1));
  app.add_option("--lr-floor", o.floor, "learning rate of the last step, as a share of --lr")
      ->check(real(0, 1));
  add_mesh_options(app, o.mesh);
  app.add_option("--shard", o.shard,
                 "parameters: each rank keeps a part of the parameters, of the gradients and of "
                 "AdamW's state, and gathers a block's parameters while it uses them (FSDP, "
                 "ZeRO-3); gradients: parameters stay gathered from forward to backward (ZeRO-2)")
      ->check(one_of({"none", "gradients", "parameters"}));
  app.add_flag(
      "--graph", o.graph,
      "one rank on a GPU: capture the step as a CUDA graph and launch it with one call; the "
      "same numbers");
  app.group("Output");
  app.add_option("--sample", o.sample.tokens, "bytes or tokens to generate at the end")
      ->check(whole(0));
  app.add_option("--prompt", o.prompt, "text that the sample continues");
  app.add_option("--temperature", o.sample.temperature,
                 "sampling temperature; 0: always the likeliest")
      ->check(real(0, 1e6));
  add_train_options(app, o.common, std::to_string(kDefaultSteps));
  if (!app.parse(argc, argv)) return false;
  require(!o.graph || (!o.mesh.given() && o.shard == "none" && !o.common.per_step),
          "--graph cannot be combined with --tensor-parallel, --pipeline, --shard or --per-step: "
          "it is for one rank; leave it out");
  return true;
}

Corpus load(GptOptions& o) {
  Corpus corpus = load_corpus({o.common.data, o.tokens, o.vocabulary}, o.model.context);
  o.model.vocabulary = corpus.alphabet;
  if (!o.tokens.empty() && !corpus.vocabulary) o.sample.tokens = 0;  // cannot be decoded
  require(!o.mesh.given() || o.shard == "none",
          "--shard cannot be combined with --tensor-parallel or --pipeline: leave one of them out");
  require(!o.prompt.empty() || o.sample.tokens == 0, "--prompt is empty; give at least one byte");
  return corpus;
}

comm::Settings inputs_of(const Corpus& corpus) {
  const auto identity = [](const TokenWindows& windows) {
    return identity_of({std::as_bytes(std::span(windows.text()))});
  };
  return {{kTrainingData, identity(*corpus.train)}, {kTestData, identity(*corpus.held_out)}};
}

EvaluationPlan evaluation_of(const GptOptions& o) {
  return {.batch = kEvaluationBatch, .most = o.validation_windows};
}

std::string headline(double nats, const Corpus& corpus) {
  return fmt::format("validation loss {:.4f} nats/{} ({:.3f} bits) on held-out text", nats,
                     corpus.unit, nats / std::log(2.0));
}

AdamOptions adam_options(const GptOptions& o) {
  return {.lr = o.common.lr, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = o.weight_decay};
}

LrSchedule schedule_of(const GptOptions& o, std::int64_t steps) {
  const auto warmup = static_cast<std::int64_t>(o.warmup * static_cast<double>(steps));
  return cosine_lr(o.common.lr, warmup, steps, o.floor * o.common.lr);
}

std::string sample_of(const GptOptions& o, const Corpus& corpus, Module& model) {
  if (o.sample.tokens == 0) return {};
  return "\n---- a sample ----\n" +
         sample_text(model, corpus.vocabulary, o.prompt, o.sample, o.common.seed) +
         "\n------------------";
}

Metadata metadata_of(const GptOptions& o) {
  return {{"program", "train_gpt"},
          {"layers", std::to_string(o.model.layers)},
          {"heads", std::to_string(o.model.heads)},
          {"seed", std::to_string(o.common.seed)}};
}

comm::Settings fixed_of(const GptOptions& o) {
  return {{"the program", "train_gpt"},
          {"--context", std::to_string(o.model.context)},
          {"--heads", std::to_string(o.model.heads)},
          {"--tie-head", o.model.tied ? "given" : "not given"},
          {"--pad-vocabulary", std::to_string(o.model.vocabulary_multiple)}};
}

}  // namespace ringsmith::apps
