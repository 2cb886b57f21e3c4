// Accumulates the gradients of several batches for one optimizer step (--accumulate): the effective
// batch can be larger than memory allows, and its gradients are reduced only once.
//
//   micro-step         1          2        ...      K
//   loss / K        backward   backward          backward
//   gradients       stay local   +=                 +=, all-reduce, optimizer
//
// The last group of an epoch may be smaller. Its losses are divided by its own size.
//
// With --ddp plain, gradients stay local in the last backward, too, and average_gradients()
// follows. With this option, DistributedDataParallel only compares the ranks' models and sends rank
// 0's state.
#pragma once

#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/train/data.hpp"
#include "labs/apps/train/run.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/device/transfer.hpp"
#include "runtime/parallel/beyond/fsdp.hpp"
#include "runtime/parallel/ddp.hpp"
#include "runtime/parallel/plain_ddp.hpp"

namespace ringsmith::apps {

// Gradients stay local until the last batch of the group.
template <class MicroStep>
void for_each_micro_step(DistributedDataParallel& ddp, std::int64_t group,
                         const MicroStep& micro_step) {
  for (std::int64_t k = 1; k < group; ++k) {
    const auto local = ddp.no_sync();
    micro_step(false);
  }
  micro_step(true);
}

// With FSDP each backward reduces: there is no place for gradients that stay local.
template <class MicroStep>
void for_each_micro_step(FullyShardedDataParallel& /*fsdp*/, std::int64_t group,
                         const MicroStep& micro_step) {
  for (std::int64_t k = 1; k <= group; ++k) micro_step(k == group);
}

// Returns one batch's share of the loss of a step of `group` batches. Forward runs under --amp.
template <class Parallel, class LossOf>
Tensor micro_loss(Parallel& ddp, const Batch& batch, std::int64_t group,
                  const TrainOptions& options, const LossOf& loss_of) {
  const Autocast autocast = autocast_of(options);
  const Tensor loss = loss_of(ddp.forward(batch.inputs), batch.targets);
  return group > 1 ? mul(loss, 1.0 / static_cast<double>(group)) : loss;
}

// This rank's loss of a step: the sum over its micro-steps. A GPU computes asynchronously, so its
// losses are read after backward has been queued.
class StepLoss {
 public:
  void add(const Tensor& loss) {
    if (loss.device().is_cpu()) {
      sum_ += loss.item<float>();
      return;
    }
    require(loss.numel() == 1 && loss.dtype() == DType::f32, "a loss must be one number of f32");
    on_their_way_.emplace_back(data_of(loss), loss.device(), Bytes(sizeof(float)));
  }
  [[nodiscard]] bool is_known() const { return on_their_way_.empty(); }
  // Waits for the device.
  [[nodiscard]] double value() {
    for (const Fetch& loss : std::exchange(on_their_way_, {})) {
      float value = 0;
      std::memcpy(&value, loss.wait(), sizeof value);
      sum_ += value;
    }
    return sum_;
  }

 private:
  double sum_ = 0;
  std::vector<Fetch> on_their_way_;
};

// Runs forward (under --amp) and backward (with scaled gradients) for the next group of at most
// --accumulate batches. loss_of(outputs, targets) is a mean over the batch. Starts the exchange of
// the ranks' losses when this rank's loss is known; on the CPU, the exchange overlaps with the last
// backward. The caller finishes the exchange.
template <class Parallel, class LossOf>
void accumulate_gradients(TrainingRun& run, LossExchange& losses, Parallel& ddp, Batches& batches,
                          GradScaler& scaler, const TrainOptions& options, Device device,
                          const LossOf& loss_of) {
  const std::int64_t group = batches.next_group(options.accumulate);
  [[maybe_unused]] const bool plain = options.ddp == "plain";
  StepLoss sum;
  bool exchanging = false;
  const auto micro_step = [&](bool last) {
    const Batch batch = batches.next().to(device);
    run.fetched();
    const Tensor loss = micro_loss(ddp, batch, group, options, loss_of);
    run.forward_done();
    sum.add(loss);
    exchanging = last && sum.is_known();
    if (exchanging) losses.begin(sum.value(), run.wish());
    scaler.scale(loss).backward();
    if constexpr (std::is_same_v<Parallel, DistributedDataParallel>)
      if (plain && last) average_gradients(ddp.group(), ddp.reducer().parameters());
    run.backward_done();
  };
  if constexpr (std::is_same_v<Parallel, DistributedDataParallel>) {
    if (plain) {
      const auto local = ddp.no_sync();
      for_each_micro_step(ddp, group, micro_step);
    } else {
      for_each_micro_step(ddp, group, micro_step);
    }
  } else {
    for_each_micro_step(ddp, group, micro_step);
  }
  if (!exchanging) losses.begin(sum.value(), run.wish());
}

// Returns the loss of this rank's next batch, without recording a graph. Consumes the batch and its
// random numbers, and updates running statistics.
template <class LossOf>
double next_loss(DistributedDataParallel& ddp, Batches& batches, const TrainOptions& options,
                 Device device, const LossOf& loss_of) {
  const NoGradGuard no_grad;
  const Batch batch = batches.next().to(device);
  const Autocast autocast = autocast_of(options);
  return loss_of(ddp.forward(batch.inputs), batch.targets).template item<float>();
}

}  // namespace ringsmith::apps
