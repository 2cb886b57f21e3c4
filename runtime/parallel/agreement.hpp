// Agreement between the ranks: on their settings and on the model, before training, and on which
// ranks had which gradient, in each backward.
//
// ---- settings ----
// A rank with a different learning rate causes no error: its replica drifts away while all losses
// keep falling. Different training data goes unnoticed, too. Programs should therefore compare
// their settings first:
//
//     require_agreement(*group, {{"--lr", fmt::format("{}", lr)},
//                                {"the training data", sha256(std::as_bytes(std::span(data)))}});
//
//     --lr is 0.1 on ranks 0, 2 and 0.5 on rank 1: use the same value on all ranks
//
// ---- the model ----
// Ranks whose models differ by one layer would exchange unrelated gradients, or hang. Each rank
// describes its model in one line per tensor. The ranks compare lengths and digests, and exchange
// the lines only if a length or a digest differs.
//
// ---- the gradients ----
// One bit per rank and parameter says whether the rank had a gradient. A rank that lacks one must
// not leave its peers waiting in an all-reduce, and an average over too few ranks must not go
// unnoticed. Therefore each rank joins all all-reduces and then sends its bits. All ranks see the
// same table and reach the same verdict in the same step:
//
//              w0 b0 w1 b1
//   rank 0      1  1  1  1        'w1', 'b1' lack a gradient on rank 1
//   rank 1      1  1  0  0
//
// Each rank also sends its number of forward passes, because a rank that skipped a backward pass
// would otherwise average gradients of different steps. It also reports whether its backward pass
// had a fault. If any rank had a fault, all ranks exchange descriptions of their faults.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/process_group.hpp"
#include "runtime/nn/module.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

class UsageMap {
 public:
  UsageMap(std::size_t parameters, std::shared_ptr<comm::ProcessGroup> group);

  void mark(int parameter);
  [[nodiscard]] bool marked(int parameter) const;
  void clear();

  // Collective. Throws CommError if the ranks are at different steps. Throws the same UsageError on
  // every rank if any rank passes a non-empty `fault`; the message lists the faults and their
  // ranks.
  void exchange(std::uint64_t step, const std::string& fault = {});

  // Results of the last exchange.
  [[nodiscard]] bool used_on(int rank, int parameter) const;
  [[nodiscard]] bool used_anywhere(int parameter) const;
  [[nodiscard]] bool used_everywhere() const;  // all parameters, all ranks
  // Returns e.g. "2 parameters have no gradient: 'head.weight' (on rank 1), 'head.bias' (on every
  // rank)".
  [[nodiscard]] std::string describe_unused(std::span<const std::string> names) const;

 private:
  [[nodiscard]] std::uint64_t* record(int rank) const { return all_.data() + rank * words_; }

  std::size_t parameters_;
  std::ptrdiff_t words_;  // words per record: the step, followed by the bits
  std::shared_ptr<comm::ProcessGroup> group_;
  std::shared_ptr<comm::CommMemory> mine_memory_, all_memory_;
  std::span<std::uint64_t> mine_, all_;
};

// Collective. Throws UsageError on every rank, with a message like the example at the top of this
// file, unless all ranks pass equal settings. Leave out settings that may differ, such as devices
// and folders.
void require_agreement(comm::ProcessGroup& group, const comm::Settings& mine);
// Returns {"parameter 'fc.weight'", "f32[4, 5]"}, ..., followed by the buffers.
[[nodiscard]] comm::Settings settings_of(const Module& model);

// Returns "rank 1", "ranks 0, 2", or, if all ranks of a world of two or more are named, "every
// rank".
[[nodiscard]] std::string describe_ranks(const std::vector<int>& ranks, int world);

[[nodiscard]] std::string describe_tensor(const std::string& kind, const std::string& name,
                                          const Tensor& tensor);

// Collective. Throws UsageError on every rank unless all lines are equal: "ranks do not hold the
// same model: entry 2 is parameter 'fc.weight' f32[4, 5] on ranks 0, 1, but parameter 'fc.weight'
// f32[4, 6] on rank 2; ...".
void verify_same_model(comm::ProcessGroup& group, const std::vector<std::string>& lines);

// Returns a collective function for GradScalerOptions::any_rank.
[[nodiscard]] std::function<bool(bool)> any_rank(std::shared_ptr<comm::ProcessGroup> group);

}  // namespace ringsmith
