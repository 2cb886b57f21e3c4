// The data of the training programs: each rank's endless stream of batches, and for language models
// also text, loss and samples.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/comm/process_group.hpp"
#include "runtime/data/loader.hpp"
#include "runtime/data/tokens.hpp"
#include "runtime/nn/gpt.hpp"

namespace ringsmith::apps {

// Names under which the data is compared across ranks and identified in a checkpoint.
inline constexpr const char* kTrainingData = "the training data";
inline constexpr const char* kTestData = "the held-out data";

// Iterates over epochs, each in a different order. Every batch is full, so every rank's mean loss
// has the same weight.
class Batches {
 public:
  // The dataset must outlive this object. Throws UsageError if it has no full batch for every rank.
  Batches(const Dataset& dataset, const comm::ProcessGroup& group, std::int64_t batch_size,
          std::uint64_t seed, int workers);

  // Shuffles the epoch and starts the workers, if next() has not done so yet. Called before the
  // first step, so that the first step is not longer than the others.
  void prepare();
  [[nodiscard]] Batch next();
  [[nodiscard]] std::int64_t per_epoch() const { return per_epoch_; }
  // Number of batches left in the epoch, or in the next epoch if none are left; at most `most`.
  [[nodiscard]] std::int64_t next_group(std::int64_t most) const;
  // For checkpoints: the position of all ranks, from which any number of ranks can continue.
  [[nodiscard]] SamplerState state() const;
  void load_state(const SamplerState& state);

 private:
  DistributedSampler sampler_;
  DataLoader loader_;
  std::int64_t batch_size_;
  std::int64_t per_epoch_;  // of a whole epoch
  std::int64_t epoch_number_ = 0;
  std::int64_t left_ = 0;  // in this epoch
  std::optional<DataLoader::Epoch> epoch_;
};

struct Corpus {
  std::optional<TokenWindows> train;     // windows may start anywhere
  std::optional<TokenWindows> held_out;  // windows do not overlap
  std::int64_t train_bytes = 0;          // or tokens
  std::int64_t held_out_bytes = 0;
  std::string origin;                    // for messages
  const char* unit = "byte";             // or "token"
  std::int64_t alphabet = 256;           // number of different bytes or tokens
  std::optional<Vocabulary> vocabulary;  // for encoding prompts and decoding output
};

// A path that was not given is empty.
struct CorpusFiles {
  std::string text, tokens, vocabulary;
};

// Loads a text as bytes or as tokens of the vocabulary (by default ringsmith's sources), or shards
// of tokens (runtime/data/tokens.hpp; by default of GPT-2's vocabulary). The last tenth of each
// text file is held out. Throws UsageError naming the file and the remedy if a file is invalid, or
// either part is shorter than one window.
[[nodiscard]] Corpus load_corpus(const CorpusFiles& files, std::int64_t context);

// Returns the mean loss in nats per byte or token. logits: (b, t, vocabulary); targets: (b, t).
[[nodiscard]] Tensor next_byte_loss(const Tensor& logits, const Tensor& targets);

// Continues the prompt. Every byte except printable ASCII, newline and tab becomes '?', because
// incomplete characters could confuse a terminal.
[[nodiscard]] std::string sample_text(Module& model, const std::optional<Vocabulary>& vocabulary,
                                      const std::string& prompt, const GenerateOptions& options,
                                      std::uint64_t seed);

}  // namespace ringsmith::apps
