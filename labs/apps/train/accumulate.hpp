// The gradients of one optimizer step from several batches (--accumulate): the effective batch can
// exceed memory, and one all-reduce serves all of it.
//
//   micro-step         1          2        ...      K
//   loss / K        backward   backward          backward
//   gradients       stay local   +=                 +=, all-reduce, optimizer
//
// The last group of an epoch may be smaller. Its losses are divided by its own size; divided by K,
// they would make its step too short.
//
// With --ddp plain gradients stay local in the last backward, too, and average_gradients() follows.
// DistributedDataParallel then only compares the ranks' models and sends rank 0's state.
#pragma once

#include "labs/apps/train/data.hpp"
#include "labs/apps/train/run.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/parallel/ddp.hpp"
#include "runtime/parallel/plain_ddp.hpp"

namespace ringsmith::apps {

// Calls micro_step(last) for each batch of the group; gradients stay local until the last one.
template <class MicroStep>
void for_each_micro_step(DistributedDataParallel& ddp, std::int64_t group,
                         const MicroStep& micro_step) {
  for (std::int64_t k = 1; k < group; ++k) {
    const auto local = ddp.no_sync();
    micro_step(false);
  }
  micro_step(true);
}

// One batch's share of the loss of a step of `group` batches, with forward under --amp.
template <class LossOf>
Tensor micro_loss(DistributedDataParallel& ddp, const Batch& batch, std::int64_t group,
                  const TrainOptions& options, const LossOf& loss_of) {
  const Autocast autocast = autocast_of(options);
  const Tensor loss = loss_of(ddp.forward(batch.inputs), batch.targets);
  return group > 1 ? mul(loss, 1.0 / static_cast<double>(group)) : loss;
}

// Runs forward (under --amp) and backward (with scaled gradients) for the next group of at most
// --accumulate batches. loss_of(outputs, targets) is a mean over the batch.
template <class LossOf>
void accumulate_gradients(TrainingRun& run, DistributedDataParallel& ddp, Batches& batches,
                          GradScaler& scaler, const TrainOptions& options, Device device,
                          const LossOf& loss_of) {
  const std::int64_t group = batches.next_group(options.accumulate);
  const bool plain = options.ddp == "plain";
  const auto micro_step = [&](bool last) {
    const Batch batch = batches.next().to(device);
    run.fetched();
    const Tensor loss = micro_loss(ddp, batch, group, options, loss_of);
    run.forward_done(loss, last);
    scaler.scale(loss).backward();
    if (plain && last) average_gradients(ddp.group(), ddp.reducer().parameters());
    run.backward_done(last);
  };
  if (!plain) return for_each_micro_step(ddp, group, micro_step);
  const auto local = ddp.no_sync();
  for_each_micro_step(ddp, group, micro_step);
}

// The loss of this rank's next batch, without a graph: it shows whether training can continue from
// a state. Consumes the batch and its random numbers; running statistics include the batch.
template <class LossOf>
double next_loss(DistributedDataParallel& ddp, Batches& batches, const TrainOptions& options,
                 Device device, const LossOf& loss_of) {
  const NoGradGuard no_grad;
  const Batch batch = batches.next().to(device);
  const Autocast autocast = autocast_of(options);
  return loss_of(ddp.forward(batch.inputs), batch.targets).template item<float>();
}

}  // namespace ringsmith::apps
