#include "labs/apps/train/data.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <string_view>
#include <vector>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/files.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/base/tracer.hpp"

namespace ringsmith::apps {

namespace {

DistributedSampler make_sampler(const Dataset& dataset, const comm::ProcessGroup& group,
                                std::int64_t batch_size, std::uint64_t seed) {
  // drop_last: no sample is repeated in an epoch
  DistributedSampler sampler(
      dataset.size(),
      {.replicas = group.size(), .rank = group.rank(), .seed = seed, .drop_last = true});
  require_a_batch(sampler, batch_size, /*drop_last_batch=*/true);
  return sampler;
}

}  // namespace

Batches::Batches(const Dataset& dataset, const comm::ProcessGroup& group, std::int64_t batch_size,
                 std::uint64_t seed, int workers)
    : sampler_(make_sampler(dataset, group, batch_size, seed)),
      loader_(dataset, sampler_, {batch_size, workers, 2, /*drop_last=*/true}),
      batch_size_(batch_size),
      per_epoch_(loader_.batches()) {}

SamplerState Batches::state() const {
  return epoch_ ? sampler_.state(epoch_->position() * batch_size_) : SamplerState{epoch_number_, 0};
}

void Batches::load_state(const SamplerState& state) {
  sampler_.load_state(state);
  epoch_number_ = state.epoch + 1;
  left_ = loader_.batches();
  epoch_.emplace(loader_.epoch());
}

void Batches::prepare() {
  if (epoch_) return;
  sampler_.set_epoch(epoch_number_++);
  left_ = loader_.batches();
  epoch_.emplace(loader_.epoch());
}

Batch Batches::next() {
  while (true) {
    prepare();
    if (std::optional<Batch> batch = epoch_->next()) {
      --left_;
      return std::move(*batch);
    }
    epoch_.reset();
  }
}

std::int64_t Batches::next_group(std::int64_t most) const {
  return std::min(most, left_ > 0 ? left_ : per_epoch_);
}

Corpus load_corpus(const CorpusFiles& files, std::int64_t context) {
  constexpr std::int64_t kGpt2 = 50257;
  Corpus out;
  if (!files.vocabulary.empty()) out.vocabulary = Vocabulary::load(files.vocabulary);
  TokenText tokens;
  if (!files.tokens.empty()) {
    out.alphabet = out.vocabulary ? out.vocabulary->size() : kGpt2;
    out.origin = files.tokens;
    tokens = load_token_shards(files.tokens, out.alphabet);
  } else {
    std::vector<std::string> paths{files.text};
    out.origin = files.text;
    if (files.text.empty()) {
      const std::string root = find_source_root();
      paths = list_sources(root);
      out.origin = fmt::format("{} files of {}", paths.size(), root);
    }
    const ByteText text = load_text(paths);
    const auto convert = [&](const std::vector<std::uint8_t>& bytes) {
      const std::string_view view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return out.vocabulary ? out.vocabulary->encode(view)
                            : std::vector<Token>(bytes.begin(), bytes.end());
    };
    tokens = {convert(text.train), convert(text.validation)};
    if (out.vocabulary) out.alphabet = out.vocabulary->size();
  }
  if (out.vocabulary || !files.tokens.empty()) out.unit = "token";
  const std::string units = std::string(out.unit) + "s";
  out.train_bytes = std::ssize(tokens.train);
  out.held_out_bytes = std::ssize(tokens.validation);
  out.train.emplace(std::move(tokens.train), context, 1, "the training part of " + out.origin,
                    units.c_str());
  out.held_out.emplace(std::move(tokens.validation), context, context,
                       "the held-out part of " + out.origin, units.c_str());
  return out;
}

Tensor next_byte_loss(const Tensor& logits, const Tensor& targets) {
  return cross_entropy(view(logits, {-1, logits.size(2)}), view(targets, {-1}));
}

std::string sample_text(Module& model, const std::optional<Vocabulary>& vocabulary,
                        const std::string& prompt, const GenerateOptions& options,
                        std::uint64_t seed) {
  std::vector<std::int64_t> tokens;
  if (vocabulary)
    for (const Token token : vocabulary->encode(prompt)) tokens.push_back(token);
  else
    for (const char c : prompt) tokens.push_back(static_cast<unsigned char>(c));
  Generator generator(seed);
  tokens = generate(model, tokens, options, generator);
  std::string text =
      vocabulary ? vocabulary->decode(tokens) : std::string(tokens.begin(), tokens.end());
  for (char& c : text)
    if (c != '\n' && c != '\t' && (c < ' ' || c > '~')) c = '?';
  return text;
}

}  // namespace ringsmith::apps
