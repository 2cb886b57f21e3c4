// GptStage: a rank's part of a GPT on a mesh: some of its blocks (pipeline), and of each block a
// part of the matrices (tensor).
//
//   GPT        tok, pos | block 0 | block 1 | block 2 | block 3 | norm, head
//   2 stages   [        stage 0            ] [          stage 1            ]
//
// Every rank draws the whole GPT from the same seed and keeps its own part, so that the initial
// weights equal one process's. Parameters keep their names in the GPT.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/nn/gpt.hpp"
#include "runtime/parallel/beyond/mesh.hpp"

namespace ringsmith {

class GptStage : public Module {
 public:
  // Takes the tensors of `whole` that this rank keeps. Throws UsageError if there are fewer layers
  // than stages, if the head is tied to a token table on another stage, or if the parts do not
  // divide the heads or, with split_sequence, the context.
  GptStage(std::unique_ptr<GPT> whole, const Mesh& mesh, bool split_sequence = false);

  // Collective over mesh.tensor. The first stage takes tokens (b, t), later ones activations (b, t,
  // dim). Returns activations or, on the last stage, logits.
  Tensor forward(const Tensor& x) override;
  [[nodiscard]] const GPTOptions& options() const { return options_; }

  // Collective over the ranks of a replica, after backward and after the gradients were averaged
  // over the replicas. Like clip_grad_norm_, for the gradients of the whole model.
  double clip_grad_norm(double max_norm) const;
  // Collective over the ranks of a replica. Returns the whole GPT's state on the first of them, and
  // nothing on the others.
  [[nodiscard]] StateDict whole_state() const;
  // Collective over mesh.tensor, after backward; does nothing without split_sequence.
  void sum_sequence_gradients();

 private:
  Mesh mesh_;
  GPTOptions options_;
  bool split_sequence_;
  std::int64_t first_block_ = 0;
  Tensor tok_, pos_;  // on the first stage
  std::vector<std::unique_ptr<Module>> blocks_;
  LayerNorm norm_;  // with head_, on the last stage
  Tensor head_;
  Dropout drop_;
};

}  // namespace ringsmith
