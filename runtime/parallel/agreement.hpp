// Agreement between the ranks: once on their settings and on the model, and in each backward on
// which ranks had which gradient.
//
// ---- settings ----
// A rank with another learning rate, or other data, fails nowhere: its replica drifts away while
// all losses keep falling. So a program of yours compares its settings before its first step, and
// every rank throws the same line if they differ:
//
//     require_agreement(*group, {{"--lr", fmt::format("{}", lr)},
//                                {"the training data", sha256(std::as_bytes(std::span(data)))}});
//
//     --lr is 0.1 on ranks 0, 2 and 0.5 on rank 1: give the same on all ranks
//
// ---- the model ----
// Ranks that differ by one layer would exchange gradients of different meaning, or hang. Each rank
// describes its model as lines of text, one for each tensor; first only the lengths and a digest
// are compared, and the lines are exchanged when these differ, to say where.
//
// ---- the gradients ----
// Which rank had a gradient for which parameter: one bit each, exchanged at the end of backward.
//
// A rank that lacks a gradient must not leave its peers waiting in an all-reduce that it will never
// join, and an average that lacks a rank must not pass unnoticed. So each rank sends its bits when
// its buckets are on their way, every rank sees the same table, and every rank comes to the same
// verdict in the same step:
//
//              w0 b0 w1 b1
//   rank 0      1  1  1  1        'w1', 'b1' lack a gradient on rank 1
//   rank 1      1  1  0  0
//
// The record also carries how many forwards the rank has made, because one that skipped a backward
// would otherwise average its gradients of one step with the others' of another, unnoticed. And
// whether something went wrong in the rank's backward: then the ranks exchange what it was.
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

  // Collective: makes every rank's bits known here. CommError if the ranks are at different steps.
  // UsageError on every rank, with the same message, if any rank has a fault (not empty): what it
  // is and on which ranks.
  void exchange(std::uint64_t step, const std::string& fault = {});

  // Of the last exchange.
  [[nodiscard]] bool used_on(int rank, int parameter) const;
  [[nodiscard]] bool used_anywhere(int parameter) const;
  [[nodiscard]] bool used_everywhere() const;  // all parameters, all ranks
  // "2 parameters have no gradient: 'head.weight' (on rank 1), 'head.bias' (on every rank)".
  [[nodiscard]] std::string describe_unused(std::span<const std::string> names) const;

 private:
  [[nodiscard]] std::uint64_t* record(int rank) const { return all_.data() + rank * words_; }

  std::size_t parameters_;
  std::ptrdiff_t words_;  // of a record: the step, then the bits
  std::shared_ptr<comm::ProcessGroup> group_;
  std::shared_ptr<comm::CommMemory> mine_memory_, all_memory_;
  std::span<std::uint64_t> mine_, all_;
};

// Collective. UsageError on every rank, with the line above, unless all ranks give the same. Values
// may have any length, names may be missing on some ranks, and the order is free. Leave out
// settings that may differ: devices, folders.
void require_agreement(comm::ProcessGroup& group, const comm::Settings& mine);
// {"parameter 'fc.weight'", "f32[4, 5]"}, ...; then the buffers.
[[nodiscard]] comm::Settings settings_of(const Module& model);

// "rank 1", "ranks 0, 2", or "every rank" if all of world are named.
[[nodiscard]] std::string describe_ranks(const std::vector<int>& ranks, int world);

// "parameter 'fc.weight' f32[4, 5]"; kind is the leading word.
[[nodiscard]] std::string describe_tensor(const std::string& kind, const std::string& name,
                                          const Tensor& tensor);

// Collective. UsageError on every rank, with the same message, unless all lines are equal:
// "ranks do not hold the same model: entry 2 is parameter 'fc.weight' f32[4, 5] on ranks 0, 1 but
// parameter 'fc.weight' f32[4, 6] on rank 2".
void verify_same_model(comm::ProcessGroup& group, const std::vector<std::string>& lines);

// A collective for GradScalerOptions::any_rank: whether any rank of the group says true.
[[nodiscard]] std::function<bool(bool)> any_rank(std::shared_ptr<comm::ProcessGroup> group);

}  // namespace ringsmith
