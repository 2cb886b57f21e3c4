// What the training programs read: an endless stream of a rank's batches; and for a language model
// its text, its loss, and a sample of what it writes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/comm/process_group.hpp"
#include "runtime/data/loader.hpp"
#include "runtime/data/tokens.hpp"
#include "runtime/nn/gpt.hpp"

namespace ringsmith::apps {

// The names under which the ranks compare their data, and a checkpoint identifies it.
inline constexpr const char* kTrainingData = "the training data";
inline constexpr const char* kTestData = "the held-out data";

// Epoch after epoch, each in its own order, every batch full, so that every rank's mean loss counts
// equally.
class Batches {
 public:
  // The dataset must outlive it. UsageError if it does not make one full batch for every rank.
  Batches(const Dataset& dataset, const comm::ProcessGroup& group, std::int64_t batch_size,
          std::uint64_t seed, int workers);

  [[nodiscard]] Batch next();
  [[nodiscard]] std::int64_t per_epoch() const { return per_epoch_; }
  // Batches until the end of the epoch, but at most `most`; 1 or more.
  [[nodiscard]] std::int64_t next_group(std::int64_t most) const;
  // For checkpoints: where all ranks are, from which any number of ranks goes on.
  [[nodiscard]] SamplerState state() const;
  void load_state(const SamplerState& state);

 private:
  DistributedSampler sampler_;
  DataLoader loader_;
  std::int64_t batch_size_;
  std::int64_t per_epoch_;  // of a whole one
  std::int64_t epoch_number_ = 0;
  std::int64_t left_ = 0;  // in this epoch
  std::optional<DataLoader::Epoch> epoch_;
};

// What a language model reads, and in which alphabet: bytes, or the tokens of a vocabulary.
struct Corpus {
  std::optional<TokenWindows> train;     // windows may start anywhere
  std::optional<TokenWindows> held_out;  // windows do not overlap
  std::int64_t train_bytes = 0;          // or tokens
  std::int64_t held_out_bytes = 0;
  std::string origin;                    // for people
  const char* unit = "byte";             // or "token"
  std::int64_t alphabet = 256;           // different bytes or tokens
  std::optional<Vocabulary> vocabulary;  // to read prompts and to write
};

// Where a corpus comes from; empty paths are not given.
struct CorpusFiles {
  std::string text, tokens, vocabulary;
};

// The text, byte by byte or as tokens of the vocabulary, or without one the sources of ringsmith;
// of each file the last tenth is held out. Or shards of tokens (runtime/data/tokens.hpp), without a
// vocabulary those of GPT-2. UsageError naming the file and the remedy, also if there is not one
// window in both parts.
[[nodiscard]] Corpus load_corpus(const CorpusFiles& files, std::int64_t context);

// Mean nats per byte or token: logits (b, t, vocabulary), targets (b, t) -> one mean.
[[nodiscard]] Tensor next_byte_loss(const Tensor& logits, const Tensor& targets);

// What the model writes after the prompt, in this alphabet (none: bytes), for terminals: bytes that
// are not printable ASCII become '?', so that half a character cannot upset them.
[[nodiscard]] std::string sample_text(Module& model, const std::optional<Vocabulary>& vocabulary,
                                      const std::string& prompt, const GenerateOptions& options,
                                      std::uint64_t seed);

}  // namespace ringsmith::apps
