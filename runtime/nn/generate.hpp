// Text from a language model, one token after the other.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/rng.hpp"
#include "runtime/nn/module.hpp"

namespace ringsmith {

struct GenerateOptions {
  std::int64_t tokens = 200;   // how many to add
  std::int64_t context = 128;  // the model sees at most this many of the latest tokens
  double temperature = 0.8;    // logits are divided by it; 0 always takes the likeliest token
  int top_k = 0;               // choose among the k likeliest only; 0: among all
};

// model maps i64 (1, t) to logits (1, t, vocabulary). Returns the prompt and what follows it.
// The model is in evaluation mode meanwhile. UsageError if the prompt is empty or an option is out
// of range, Error if a logit is NaN.
[[nodiscard]] std::vector<std::int64_t> generate(Module& model, std::vector<std::int64_t> prompt,
                                                 const GenerateOptions& options, Generator& g);

// The draw by itself: an index of logits.
[[nodiscard]] std::int64_t sample_token(const std::vector<float>& logits, double temperature,
                                        int top_k, Generator& g);

}  // namespace ringsmith
