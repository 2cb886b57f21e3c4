// Tensor parallelism: the matrices of each block are split among T ranks, which all see the same
// batch.
//
//   MLP        x --f--> up: 1/T of its outputs --> GELU -----> down: 1/T of its inputs --g--> +bias
//   attention  x --f--> q, k, v of heads / T --> attention --> out: 1/T of its inputs --g--> +bias
//
//            forward       backward
//     f      identity      all-reduce     each rank's columns contribute to the gradient of x
//     g      all-reduce    identity       each rank's rows contribute to y
//
// The first matrix is split by columns (of y = x A), the second by rows, so nothing between them
// needs communication: GELU is elementwise, and heads are independent. A block costs two
// all-reduces of the activations in forward and two in backward. Norms, embeddings, the head and
// the biases after g are not split: every rank computes the same values from the same inputs, bit
// for bit, so their gradients need no communication.
//
// Sequence parallelism also splits the rest of a block, along the tokens: norms, dropout and
// residual sums work on 1/T of the sequence. Then f gathers the sequence, and g scatters the sums.
// An all-reduce is a reduce-scatter and an all-gather, so the bytes are the same, but activations
// between the blocks need 1/T of the memory. Gradients of norms and of the biases after g are then
// sums over a rank's own tokens, which sum_sequence_gradients() adds up after backward.
//
//            forward                       backward
//     f      all-gather of the tokens      reduce-scatter
//     g      reduce-scatter                all-gather
//
// Results equal one process's up to rounding, because the products are summed in T pieces.
//
// Shoeybi et al., "Megatron-LM: training multi-billion parameter language models using model
// parallelism", 2019. Korthikanti et al., "Reducing activation recomputation in large transformer
// models", MLSys 2023.
#pragma once

#include <memory>
#include <string>

#include "runtime/comm/process_group.hpp"
#include "runtime/nn/gpt.hpp"

namespace ringsmith {

using TensorGroup = std::shared_ptr<comm::ProcessGroup>;

// ---- the operators; collective over the group, in forward or in backward ----
[[nodiscard]] Tensor sum_gradients(const TensorGroup& group, const Tensor& x);  // f
[[nodiscard]] Tensor sum_parts(const TensorGroup& group, const Tensor& x);      // g
// With sequence parallelism; x is (b, t, c), and dimension 1 is split. Throws UsageError unless the
// group's size divides t.
[[nodiscard]] Tensor gather_sequence(const TensorGroup& group, const Tensor& x);   // f
[[nodiscard]] Tensor scatter_sequence(const TensorGroup& group, const Tensor& x);  // g
// At the ends of the split region, where all ranks hold the same whole x: this rank's tokens in
// forward, an all-gather in backward; and the reverse.
[[nodiscard]] Tensor take_sequence(const TensorGroup& group, const Tensor& x);
[[nodiscard]] Tensor whole_sequence(const TensorGroup& group, const Tensor& x);

// ---- which part of a tensor a rank holds ----
enum class TensorSplit : std::uint8_t {
  none,         // all ranks hold the whole tensor
  outputs,      // rows of a weight (out, in), or elements of its bias: column-parallel
  inputs,       // columns of a weight (out, in): row-parallel
  qkv_outputs,  // outputs of each of three matrices below one another
};
// Returns the split of a parameter of a Block by its name there, such as "attention.qkv.weight".
[[nodiscard]] TensorSplit split_of(const std::string& name);
// Returns a copy of the part of rank `rank` of `ranks`. Throws UsageError if it is not even.
[[nodiscard]] Tensor part_of(const Tensor& whole, TensorSplit split, int rank, int ranks);
// Collective. The inverse: returns the whole tensor on every rank.
[[nodiscard]] Tensor whole_of(comm::ProcessGroup& group, const Tensor& part, TensorSplit split);

// ---- a transformer block ----

// A rank's part of a Block: the same names, the same function. Its initial weights are parts of the
// given block's, so that all ranks together start with the weights of one process.
class TensorParallelBlock : public Module {
 public:
  // The ranks must pass equal blocks. Throws UsageError unless the group's size divides the heads.
  TensorParallelBlock(const Block& whole, const GPTOptions& options, TensorGroup group,
                      bool split_sequence = false);
  // Collective. x: (b, t, dim); with split_sequence this rank's tokens, (b, t / T, dim).
  Tensor forward(const Tensor& x) override;

  // Collective, after backward: with split_sequence, sums the gradients of the parameters that are
  // not split. Otherwise does nothing.
  void sum_sequence_gradients();

 private:
  struct SplitLinear {
    Tensor weight, bias;
  };
  void take(const std::string& name, SplitLinear& slot, const Linear& whole);
  [[nodiscard]] Tensor enter(const Tensor& x) const;                            // f
  [[nodiscard]] Tensor leave(const Tensor& x, const SplitLinear& layer) const;  // product, g, bias

  TensorGroup group_;
  bool split_sequence_;
  int heads_;  // of this rank
  LayerNorm norm1_, norm2_;
  SplitLinear qkv_, out_, up_, down_;
  Dropout drop_;
};

}  // namespace ringsmith
