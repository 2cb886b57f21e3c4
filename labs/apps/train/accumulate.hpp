// Gradients of one optimizer step from several batches (--accumulate): a larger batch than memory
// holds, and one all-reduce for all of it.
//
//   micro-step         1          2        ...      K
//   loss / K        backward   backward          backward
//   gradients       stay local   +=                 +=, all-reduce, optimizer
//
// The last group of an epoch may be smaller. Its losses are divided by its own size: divided by K,
// its step would be too short.
#pragma once

#include "labs/apps/train/data.hpp"
#include "labs/apps/train/run.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/parallel/ddp.hpp"

namespace ringsmith::apps {

// micro_step(last) once for each batch of the group; gradients stay local until the last one.
template <class MicroStep>
void for_each_micro_step(DistributedDataParallel& ddp, std::int64_t group,
                         const MicroStep& micro_step) {
  for (std::int64_t k = 1; k < group; ++k) {
    const auto local = ddp.no_sync();
    micro_step(false);
  }
  micro_step(true);
}

// One batch's part of the loss of a step of `group` batches, forward as --amp says.
template <class LossOf>
Tensor micro_loss(DistributedDataParallel& ddp, const Batch& batch, std::int64_t group,
                  const TrainOptions& options, const LossOf& loss_of) {
  const Autocast autocast = autocast_of(options);
  const Tensor loss = loss_of(ddp.forward(batch.inputs), batch.targets);
  return group > 1 ? mul(loss, 1.0 / static_cast<double>(group)) : loss;
}

// The next group of at most --accumulate batches, forward as --amp says, and backward, with scaled
// gradients. loss_of(outputs, targets) is a mean over the batch.
template <class LossOf>
void accumulate_gradients(TrainingRun& run, DistributedDataParallel& ddp, Batches& batches,
                          GradScaler& scaler, const TrainOptions& options, Device device,
                          const LossOf& loss_of) {
  const std::int64_t group = batches.next_group(options.accumulate);
  for_each_micro_step(ddp, group, [&](bool last) {
    const Batch batch = batches.next().to(device);
    run.fetched();
    const Tensor loss = micro_loss(ddp, batch, group, options, loss_of);
    run.forward_done(loss, last);
    scaler.scale(loss).backward();
    run.backward_done(last);
  });
}

// The loss of this rank's next batch, without a graph: it shows whether training can continue from
// a state. The batch and its random numbers are used up, and running statistics see the batch.
template <class LossOf>
double next_loss(DistributedDataParallel& ddp, Batches& batches, const TrainOptions& options,
                 Device device, const LossOf& loss_of) {
  const NoGradGuard no_grad;
  const Batch batch = batches.next().to(device);
  const Autocast autocast = autocast_of(options);
  return loss_of(ddp.forward(batch.inputs), batch.targets).template item<float>();
}

}  // namespace ringsmith::apps
