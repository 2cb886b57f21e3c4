// A GPT (a decoder-only transformer with pre-normalisation), and text generation.
//
//   tokens (b, t) -> tok[token] + pos[index] -> block x layers -> norm -> head -> logits (b, t, v)
//
//   block:  x ---+--> norm1 -> attention --+--+--> norm2 -> up -> GELU -> down --+-->
//                |                         |  |                                  |
//                +-------------------------+  +----------------------------------+
//
// Each position attends only to itself and earlier ones, so one pass trains all t predictions.
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
  double dropout = 0;  // applied to the sum of the embeddings and to each branch
  bool tied = false;   // the head uses the token table as its weight
  // Pads the head to a multiple of this many rows. The extra rows are 0 and unused. Tensor cores
  // multiply 50,304 columns (128 x 393) faster than 50,257, with the same results.
  std::int64_t vocabulary_multiple = 1;
  // In training each block saves only its input and is recomputed in backward
  // (runtime/autograd/checkpoint.hpp): the same results with less memory and one third more
  // computation.
  bool activation_checkpointing = false;
  // True: weights are normally distributed with mean 0 and standard deviation 0.02, or 0.02 /
  // sqrt(2 layers) at the end of a branch; biases are 0. False: layers keep their own initial
  // values.
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
  // Throws UsageError if an option is out of range.
  explicit GPT(const GPTOptions& options);

  // tokens: i64 (b, t) with t <= context, each in [0, vocabulary). Returns logits.
  Tensor forward(const Tensor& tokens) override;
  [[nodiscard]] const GPTOptions& options() const { return options_; }

  Embedding tok, pos;
  std::vector<std::unique_ptr<Block>> blocks;
  LayerNorm norm;
  std::unique_ptr<Linear> head;

 private:
  void initialise_as_gpt2();
  [[nodiscard]] std::vector<Tensor> matrices() const;  // weights and biases of the Linear layers
  GPTOptions options_;
  Dropout drop_;
};

// ---- text from a language model, token by token ----

struct GenerateOptions {
  std::int64_t tokens = 200;
  std::int64_t context = 128;  // the model sees at most this many of the latest tokens
  double temperature = 0.8;    // divides the logits; 0: always the most likely token
  int top_k = 0;               // chooses among the k most likely tokens; 0: among all
};

// `model` maps i64 (1, t) to logits (1, t, vocabulary) and is in evaluation mode during the call.
// Returns the prompt followed by the new tokens. Throws UsageError if the prompt is empty or an
// option is out of range, and Error if a logit is NaN.
[[nodiscard]] std::vector<std::int64_t> generate(Module& model, std::vector<std::int64_t> prompt,
                                                 const GenerateOptions& options, Generator& g);

// Draws one token and returns it as an index into logits.
[[nodiscard]] std::int64_t sample_token(const std::vector<float>& logits, double temperature,
                                        int top_k, Generator& g);

}  // namespace ringsmith
