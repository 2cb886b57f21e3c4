// Agreement between the ranks: once on their settings and on the model, and in each backward on
// which ranks had which gradient.
//
// ---- settings ----
// A rank with another learning rate, or other data, causes no error: its replica drifts away while
// all losses keep falling. Therefore a program should compare the ranks' settings before its first
// step. If they differ, every rank throws the same message:
//
//     require_agreement(*group, {{"--lr", fmt::format("{}", lr)},
//                                {"the training data", sha256(std::as_bytes(std::span(data)))}});
//
//     --lr is 0.1 on ranks 0, 2 and 0.5 on rank 1: use the same value on all ranks
//
// ---- the model ----
// Ranks whose models differ by one layer would exchange unrelated gradients, or hang. Each rank
// describes its model as lines of text, one per tensor. The ranks first compare only lengths and
// digests. If any differ, all ranks exchange their lines, to report the first difference.
//
// ---- the gradients ----
// One bit per rank and parameter says whether the rank had a gradient. The bits are exchanged at
// the end of backward.
//
// A rank that lacks a gradient must not leave its peers waiting in an all-reduce that it never
// joins, and an average over too few ranks must not go unnoticed. Therefore each rank joins all
// all-reduces and then sends its bits. Every rank sees the same table and reaches the same verdict
// in the same step:
//
//              w0 b0 w1 b1
//   rank 0      1  1  1  1        'w1', 'b1' lack a gradient on rank 1
//   rank 1      1  1  0  0
//
// The record also carries the number of forwards that the rank has made; otherwise a rank that
// skipped a backward would silently average its gradients of one step with its peers' of another.
// It also says whether the rank's backward had a fault. If any had, all ranks exchange
// descriptions.
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

  // Collective. Exchanges the bits of all ranks. Throws CommError if the ranks are at different
  // steps. Throws UsageError on every rank if any rank passes a non-empty `fault`; the message is
  // the same on all ranks and contains the faults and their ranks.
  void exchange(std::uint64_t step, const std::string& fault = {});

  // Results of the last exchange.
  [[nodiscard]] bool used_on(int rank, int parameter) const;
  [[nodiscard]] bool used_anywhere(int parameter) const;
  [[nodiscard]] bool used_everywhere() const;  // all parameters, all ranks
  // Returns "2 parameters have no gradient: 'head.weight' (on rank 1), 'head.bias' (on every
  // rank)".
  [[nodiscard]] std::string describe_unused(std::span<const std::string> names) const;

 private:
  [[nodiscard]] std::uint64_t* record(int rank) const { return all_.data() + rank * words_; }

  std::size_t parameters_;
  std::ptrdiff_t words_;  // words per record: the step, then the bits
  std::shared_ptr<comm::ProcessGroup> group_;
  std::shared_ptr<comm::CommMemory> mine_memory_, all_memory_;
  std::span<std::uint64_t> mine_, all_;
};

// Collective. Throws UsageError on every rank, with the line above, unless all ranks pass equal
// settings. Values may have any length, names may be missing on some ranks, and the order does not
// matter. Leave out settings that may differ: devices, folders.
void require_agreement(comm::ProcessGroup& group, const comm::Settings& mine);
// Returns {"parameter 'fc.weight'", "f32[4, 5]"}, ..., followed by the buffers.
[[nodiscard]] comm::Settings settings_of(const Module& model);

// Returns "rank 1", "ranks 0, 2", or "every rank" if all `world` ranks are named.
[[nodiscard]] std::string describe_ranks(const std::vector<int>& ranks, int world);

// "parameter 'fc.weight' f32[4, 5]"; kind is the leading word.
[[nodiscard]] std::string describe_tensor(const std::string& kind, const std::string& name,
                                          const Tensor& tensor);

// Collective. Throws UsageError on every rank, with the same message, unless all lines are equal:
// "ranks do not hold the same model: entry 2 is parameter 'fc.weight' f32[4, 5] on ranks 0, 1 but
// parameter 'fc.weight' f32[4, 6] on rank 2".
void verify_same_model(comm::ProcessGroup& group, const std::vector<std::string>& lines);

// Returns a collective for GradScalerOptions::any_rank, which is true if any rank of the group
// passes true.
[[nodiscard]] std::function<bool(bool)> any_rank(std::shared_ptr<comm::ProcessGroup> group);

}  // namespace ringsmith
