// What a language-model run needs besides training: its text, its held-out loss, a sample.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/comm/process_group.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/nn/gpt.hpp"
#include "runtime/nn/module.hpp"

namespace ringsmith::apps {

struct Corpus {
  std::optional<ByteWindows> train;     // windows may start at any byte
  std::optional<ByteWindows> held_out;  // windows do not overlap
  std::int64_t train_bytes = 0;
  std::int64_t held_out_bytes = 0;
  std::string origin;  // for people
};

// The file, or without a path the sources of ringsmith; of each file the last tenth is held out.
// UsageError naming the file and the remedy if there is not one window in both parts.
[[nodiscard]] Corpus load_corpus(const std::string& path, std::int64_t context);

// Mean nats per byte: logits (b, t, vocabulary), targets (b, t) -> one mean.
[[nodiscard]] Tensor next_byte_loss(const Tensor& logits, const Tensor& targets);

// Collective: mean loss over at most that many held-out windows, evenly spread; ranks share the
// work.
[[nodiscard]] double validate(comm::ProcessGroup& group, Module& model, const Dataset& held_out,
                              std::int64_t most_windows);

// What the model writes after the prompt, for terminals: bytes that are not printable ASCII become
// '?', so that half a character cannot upset them.
[[nodiscard]] std::string sample_text(Module& model, const std::string& prompt,
                                      const GenerateOptions& options, std::uint64_t seed);

}  // namespace ringsmith::apps
