#include "labs/apps/train/data.hpp"

#include <algorithm>
#include <fmt/format.h>
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
  // drop_last: no sample twice in an epoch.
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

Batch Batches::next() {
  while (true) {
    if (!epoch_) {
      sampler_.set_epoch(epoch_number_++);
      left_ = loader_.batches();
      epoch_.emplace(loader_.epoch());
    }
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

Corpus load_corpus(const std::string& path, std::int64_t context) {
  Corpus out;
  std::vector<std::string> paths{path};
  out.origin = path;
  if (path.empty()) {
    const std::string root = find_source_root();
    paths = list_sources(root);
    out.origin = fmt::format("{} files of {}", paths.size(), root);
  }
  ByteText text = load_text(paths);
  out.train_bytes = static_cast<std::int64_t>(text.train.size());
  out.held_out_bytes = static_cast<std::int64_t>(text.validation.size());
  out.train.emplace(std::move(text.train), context, 1, "the training part of " + out.origin);
  out.held_out.emplace(std::move(text.validation), context, context,
                       "the held-out tenth of " + out.origin);
  return out;
}

Tensor next_byte_loss(const Tensor& logits, const Tensor& targets) {
  return cross_entropy(view(logits, {-1, logits.size(2)}), view(targets, {-1}));
}

std::string sample_text(Module& model, const std::string& prompt, const GenerateOptions& options,
                        std::uint64_t seed) {
  std::vector<std::int64_t> bytes;
  for (const char c : prompt) bytes.push_back(static_cast<unsigned char>(c));
  Generator generator(seed);
  std::string text;
  for (const std::int64_t byte : generate(model, bytes, options, generator)) {
    const bool plain = byte == '\n' || byte == '\t' || (byte >= ' ' && byte < 127);
    text += plain ? static_cast<char>(byte) : '?';
  }
  return text;
}

}  // namespace ringsmith::apps
