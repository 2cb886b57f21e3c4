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

// The next group of at most --accumulate batches, forward as --amp says, and backward, with scaled
// gradients. loss_of(outputs, targets) is a mean over the batch.
template <class LossOf>
void accumulate_gradients(TrainingRun& run, DistributedDataParallel& ddp, Batches& batches,
                          GradScaler& scaler, const TrainOptions& options, Device device,
                          const LossOf& loss_of) {
  const std::int64_t group = batches.next_group(options.accumulate);
  const auto micro_step = [&](bool last) {
    const Batch batch = batches.next().to(device);
    run.fetched();
    Tensor loss;
    {
      const Autocast autocast = autocast_of(options);
      loss = loss_of(ddp.forward(batch.inputs), batch.targets);
      if (group > 1) loss = mul(loss, 1.0 / static_cast<double>(group));
    }
    run.forward_done(loss, last);
    scaler.scale(loss).backward();
    run.backward_done(last);
  };
  for (std::int64_t k = 1; k < group; ++k) {
    const auto local = ddp.no_sync();
    micro_step(false);
  }
  micro_step(true);
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
