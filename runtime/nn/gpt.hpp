// A GPT: the decoder-only transformer, pre-norm; and text from it.
//
//   tokens (b, t) -> tok[token] + pos[place] -> block x layers -> norm -> head -> logits (b, t, v)
//
//   block:  x ---+--> norm1 -> attention --+--+--> norm2 -> up -> GELU -> down --+-->
//                |                         |  |                                  |
//                +-------------------------+  +----------------------------------+
//
// Each place attends to itself and to earlier places only, so one pass trains all t predictions.
// Radford et al., "Language models are unsupervised multitask learners", 2019.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/base/rng.hpp"
#include "runtime/nn/layers.hpp"

namespace ringsmith {

struct GPTOptions {
  std::int64_t vocabulary = 256;
  std::int64_t context = 128;  // longest input
  int layers = 4;
  std::int64_t dim = 128;  // a multiple of heads
  int heads = 4;
  double dropout = 0;  // of the embedding's sum and of each branch's result
  bool tied = false;   // the head uses the token table as its weight
  // The head has rows for the next multiple of this, those behind the vocabulary 0 and unused:
  // tensor cores multiply 50,304 columns (128 x 393) faster than 50,257. The same numbers.
  std::int64_t vocabulary_multiple = 1;
  // In training each block keeps its input only, and is computed again in backward
  // (runtime/autograd/checkpoint.hpp): the same numbers, less memory, a third more computation.
  bool activation_checkpointing = false;
  // Weights N(0, 0.02), those that end a branch divided by sqrt(2 layers), biases 0; instead of the
  // layers' own initial values.
  bool gpt2_init = false;
};

// (b, t, dim) -> (b, t, dim)
class CausalSelfAttention : public Module {
 public:
  CausalSelfAttention(std::int64_t dim, int heads);
  Tensor forward(const Tensor& x) override { return out(attention_qkv(qkv(x), heads_, true)); }
  Linear qkv, out;

 private:
  int heads_;
};

class Block : public Module {
 public:
  explicit Block(const GPTOptions& options);
  Tensor forward(const Tensor& x) override;
  LayerNorm norm1;
  CausalSelfAttention attention;
  LayerNorm norm2;
  Linear up, down;

 private:
  Dropout drop_;
};

class GPT : public Module {
 public:
  // UsageError if an option is out of range.
  explicit GPT(const GPTOptions& options);

  // tokens: i64 (b, t) with t <= context, each in [0, vocabulary); returns logits.
  Tensor forward(const Tensor& tokens) override;
  [[nodiscard]] const GPTOptions& options() const { return options_; }

  Embedding tok, pos;
  std::vector<std::unique_ptr<Block>> blocks;
  LayerNorm norm;
  std::unique_ptr<Linear> head;

 private:
  void initialise_as_gpt2();
  GPTOptions options_;
  Dropout drop_;
};

// ---- text from a language model, one token after the other ----

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
