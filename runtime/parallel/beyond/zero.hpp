// ZeRO-1: the optimizer's state is partitioned among the ranks.
//
//                 plain data parallelism                ZeRO-1, rank r of W
//   parameters    all                                   all
//   gradients     all, averaged by all-reduce           all local ones; averaged: 1/W
//   state         all (AdamW: two numbers each)         1/W
//   a step        all-reduce | update all               reduce-scatter | update 1/W | all-gather
//
//   bucket b, 3 ranks       | rank 0's part | rank 1's part | rank 2's part |tail|
//   backward, when full     reduce-scatter: each rank averages its part; all average the tail
//   step()                  each rank updates its part and the tail (fewer than W elements)
//                           all-gather: parts of the parameters
//
// An all-reduce is a reduce-scatter plus an all-gather, so the ranks send the same number of bytes.
// Each rank needs only 1/W of the state's memory and of the update's time. Rajbhandari et al.,
// "ZeRO: memory optimizations toward training trillion parameter models", SC 2020, stage 1.
// PyTorch's ZeroRedundancyOptimizer partitions by whole parameters and all-reduces all gradients.
//
//   DistributedDataParallel ddp(model, group);
//   ZeroRedundancyOptimizer optimizer(
//       ddp, [](auto p) { return std::make_unique<AdamW>(std::move(p), AdamOptions{}); });
//
// ZeroRedundancyOptimizer is used like any other optimizer, except that state_dict() is collective
// and that gradients must be clipped with clip_grad_norm().
//
// Reproducibility. With all_reduced gradients the parameters equal plain training's, bit for bit,
// because the update is elementwise. With scattered gradients they are also equal on 1 and 2 ranks.
// On more ranks, sums near the ends of the parts may be added in another order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/ddp.hpp"

namespace ringsmith {

enum class ZeroGradients : std::uint8_t {
  scattered,    // by reduce-scatter. After backward, .grad holds this rank's own gradients, not the
                // average: call zero_grad() before the next backward, clip with clip_grad_norm()
  all_reduced,  // by DDP as usual, with its hooks: twice the bytes before the update
};

class ZeroRedundancyOptimizer : public Optimizer {
 public:
  using Make = std::function<std::unique_ptr<Optimizer>(std::vector<Tensor>)>;

  // Collective, before the first forward of `ddp`. Uses ddp's group. If gradients are scattered,
  // this object is ddp's communication hook and must outlive ddp's last backward pass. The
  // parameters become views of one block of communication memory. make() creates the optimizer for
  // one-dimensional parts of parameters. That optimizer must be elementwise: a norm per parameter,
  // as in LAMB, would be wrong. Throws UsageError if the parameters are on a GPU that is not the
  // group's device, if they have several dtypes, or if gradients are scattered and DDP already has
  // a communication hook or has run a forward.
  ZeroRedundancyOptimizer(DistributedDataParallel& ddp, const Make& make,
                          ZeroGradients gradients = ZeroGradients::scattered);

  // step() is collective.

  // Collective. Like clip_grad_norm_, scales the averaged gradients so that their 2-norm is at most
  // max_norm, and returns the norm before scaling.
  double clip_grad_norm(double max_norm);

  void set_lr(double lr) override;

  [[nodiscard]] const std::vector<std::string>& state_names() const override {
    return inner_->state_names();
  }
  [[nodiscard]] bool counts_steps() const override { return inner_->counts_steps(); }

  // If gradients are scattered, gradients() returns the averages of this rank's parts and of the
  // tails, and any_rank() is collective.
  [[nodiscard]] std::vector<Tensor> gradients() const override;
  [[nodiscard]] bool any_rank(bool mine) const override;

  // Collective. Returns the state of all ranks in the format of a plain optimizer of ddp's
  // parameters (Optimizer::state_dict), from which any number of ranks, or a plain optimizer, can
  // continue.
  [[nodiscard]] StateDict state_dict() const override;
  // The state must be the same on every rank. Throws UsageError naming the entry that does not fit.
  void load_state_dict(const StateDict& state) override;

  [[nodiscard]] Bytes state_bytes() const;  // of this rank: its parts and the tails

 private:
  void update(const std::vector<Update>& all) override;
  [[nodiscard]] Hyperparameters hyperparameters() const override { return {}; }  // inner_ has them
  void set_hyperparameters(const Hyperparameters& values) override { (void)values; }

  // Elements of a parameter that this rank updates.
  struct ParameterShard {
    std::size_t parameter = 0;
    std::int64_t from = 0, to = 0;  // in the flat parameter
    std::size_t bucket = 0;
    std::int64_t at = -1;  // offset in this rank's part of the bucket; -1: in the tail
    Tensor values;
  };
  struct Bucket {
    std::int64_t start = 0, count = 0, part = 0;  // elements; in the arena
    Tensor mine;  // one part: its averaged gradients, later its new parameters, to be gathered
  };
  [[nodiscard]] Tensor arena(std::int64_t start, std::int64_t count) const;
  [[nodiscard]] Tensor gradient_of(const ParameterShard& piece) const;
  [[nodiscard]] Future scatter(const GradBucket& bucket) const;
  void take(std::size_t bucket, const BucketLayout& layout, std::int64_t from, std::int64_t to,
            bool tail);
  void gather(const Tensor& all) const;

  comm::ProcessGroup& group_;
  ZeroGradients gradients_;
  BucketPlan plan_;
  Tensor memory_;  // the parameters, in the order of plan_
  std::vector<Bucket> buckets_;
  std::vector<ParameterShard> pieces_;
  std::unique_ptr<Optimizer> inner_;  // optimizer of pieces_
};

}  // namespace ringsmith
