// train_gpt --graph: the step as a CUDA graph (runtime/optim/step_graph.hpp).
//
//   host     copy the batch, launch, fetch the loss     wait for the loss     copy the batch, ...
//   device          [forward, backward, clipping, AdamW]
//
// The loss of a step is read after the step has been applied. If it is not finite, the run ends
// before it writes a checkpoint, as without --graph.
#include <string>
#include <vector>

#include "labs/apps/train/accumulate.hpp"
#include "labs/apps/train/gpt_program.hpp"
#include "runtime/autograd/autocast.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/optim/step_graph.hpp"

namespace ringsmith::apps {

void check_graph(const GptOptions& o, int ranks) {
  const TrainOptions& c = o.common;
  const auto refuse = [&](bool given, const std::string& option, const std::string& reason) {
    require(!o.graph || !given, "--graph cannot be combined with " + option + ": " + reason +
                                    "; leave out one of the two");
  };
  refuse(c.device == "cpu", "--device cpu", "only a GPU launches graphs");
  refuse(ranks > 1, std::to_string(ranks) + " ranks",
         "a graph cannot repeat collectives, on which the hosts agree");
  refuse(c.accumulate > 1, "--accumulate", "the number of a step's batches may change");
  refuse(c.amp == "f16", "--amp f16", "the host changes the scale and skips steps");
  refuse(o.model.dropout > 0, "--dropout", "each replay would drop the same activations");
  refuse(c.profile, "--profile", "it measures each kernel with events that the host reads");
}

void train_captured(const GptOptions& o, TrainingRun& run, LossExchange& losses,
                    DistributedDataParallel& ddp, Batches& batches, AdamW& optimizer,
                    const LrSchedule& schedule) {
  StepGraph step(optimizer, [&](const std::vector<Tensor>& batch) {
    const auto local = ddp.no_sync();  // a single rank has nothing to reduce
    optimizer.zero_grad();
    Tensor loss;
    {
      const Autocast autocast = autocast_of(o.common);
      loss = next_byte_loss(ddp.forward(batch[0]), batch[1]);
    }
    loss.backward();
    clip_grad_norm_(optimizer.params(), o.clip);
    optimizer.step();
    return loss;
  });
  while (run.begin_step()) {
    const Batch batch = batches.next();
    run.fetched();
    optimizer.set_lr(schedule(run.updates()));
    StepLoss loss;
    loss.add(step({batch.inputs, batch.targets}));
    run.forward_done();
    run.backward_done();
    losses.begin(loss.value(), run.wish());
    const double mean = losses.finish(run.step());
    run.losses_done(mean, losses.wish());
    run.step_done(true, optimizer.lr(), 1);
  }
}

}  // namespace ringsmith::apps
