// PerStepTraining: data-parallel training that goes on, within the step, without the ranks that it
// loses, and takes in new ones while it runs.
//
//   step      6         7          7 again       8           9          10
//   rank 0  [====]....[== x ]....[======]....[======]....[======]....[====]
//   rank 1  [====]....[== x ]....[======]....[======]....[======]....[====]
//   rank 2  [====]....[=  killed                started, [ state ]....[====]
//   rank 3  [====]....[== x ]....[======]....[======]....  joins .....[====]
//                ^ vote     ^ fails at once: who noticed aborts the group
//
//   PerStepTraining training(model, optimizer, connect_to_coordinator(), options);
//   while (training.step() < steps)
//     training.try_step(
//         [&](DistributedDataParallel& ddp, const Turn& turn) {
//           const Batch batch = dataset.get(sampler.indices(turn.rank, turn.ranks));
//           const Tensor loss = cross_entropy(ddp.forward(batch.inputs), batch.targets);
//           loss.backward();
//           return double{loss.item<float>()};
//         },
//         [&](const Turn& turn) { sampler.step_done(turn.ranks); optimizer.set_lr(...); });
//   training.finish([&](comm::ProcessGroup& group) { ... });
//
// - Before each step all ranks ask the coordinator (store/coordinator.hpp) who is there. While that
//   does not change they keep their group; else they make a new one, and DDP's buckets on it, in
//   the order that is known. No process starts anew, and nobody sends parameters: they agree.
// - A collective that fails is caught, the group is aborted, so that the others learn of it within
//   milliseconds, and this rank votes that the step does not count. Then it is done again by those
//   who are there: gradients are averaged over them, samples dealt out among them.
// - The optimizer steps only when the step counts, on all ranks or on none. With a GradScaler, a
//   step whose gradients are infinite or NaN counts, and all ranks skip its update: they look at
//   the same reduced gradients, a rank that joins in this step too.
// - A rank that joins is a member of its first step, and adds zeros to the gradients, which are
//   averaged over the others. Meanwhile one of those sends it the state of the step's begin, on a
//   connection of their own, by a thread beside forward and backward. When the step counts it
//   applies the same update to that state, and from then on it is as the others.
//
// Bits. Every sum depends on the members and their order, and the order on the history of who was
// there in which step (seniority). So with the same history a training has the same bits again, and
// without a failure it has those of DistributedDataParallel.
//
// What is lost: the step at hand, of all ranks. A step waits for a joining rank's state: a training
// whose state takes longer to send than a step takes stands still that long. If no rank is left
// that has the state, or too few are there for too long, or the launcher ends, the training ends.
// Against that, the first rank can save what all have, between two steps; in a later job all ranks
// begin with it (PerStepOptions::begin). Which rank is the first changes when it is lost.
//
// Stopping. A signal that one rank has got (PerStepOptions::stop) is known to all when the step
// has counted: stop_asked(). Then each calls finish(), with a body that saves.
//
// The idea is torchft's (github.com/pytorch/torchft): quorum, vote, zeros from who heals.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/amp/grad_scaler.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/comm/bootstrap/store/client.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/ddp.hpp"
#include "runtime/parallel/state_transfer.hpp"
#include "runtime/parallel/stop_request.hpp"

namespace ringsmith {

// This rank among those whose gradients count in a step.
struct Turn {
  std::int64_t step = 0;
  int rank = 0, ranks = 1;
};

// Where a test may have a rank end.
enum class PerStepMoment : std::uint8_t { meeting, sending, receiving, voting, counted };

struct PerStepOptions {
  // Where a training begins that continues an earlier one; model and optimizer have its state.
  struct Begin {
    std::int64_t step = 0, updates = 0;  // that were done
    std::vector<int> ready_order = {};   // PerStepTraining::ready_order() of then
    std::string from;                    // the state, by name and contents: ranks compare it
  };
  comm::GroupOptions group;  // of the groups of all quorums; its settings are compared by each rank
                             // that comes, and the model's names, shapes and dtypes with them
  DdpOptions ddp;
  // Of the losses, if they are scaled; must outlive the training. It needs no any_rank.
  GradScaler* scaler = nullptr;
  // What a rank needs besides parameters, buffers and the states of optimizer and scaler: save() on
  // one that has it, load() on one that joins, before the update of its first step.
  std::function<Metadata()> save = {};
  std::function<void(const Metadata&)> load = {};
  // Called once, when the first quorum stands, on each rank that begins the training, not on one
  // that joins later. None: at step 0.
  std::function<Begin(bool is_first)> begin = {};
  const StopRequest* stop = nullptr;           // of this process; must outlive the training
  std::function<void(PerStepMoment)> at = {};  // for tests
};

// This process's own connection to the coordinator of the ringrun --per-step that started it.
// UsageError if none did.
[[nodiscard]] std::shared_ptr<comm::StoreClient> connect_to_coordinator(
    std::chrono::milliseconds timeout);

class PerStepTraining {
 public:
  // Waits for the first quorum. rank: this process's number in the job. The model has the same
  // values on all ranks that start together. Model and optimizer must outlive this. UsageError for
  // DDP's static_graph and ignored: a rank that joins has all gradients, and all of the state.
  // Another UsageError names the first difference between this rank's settings, or the state that
  // it begins with, and those of the first rank to arrive.
  PerStepTraining(Module& model, Optimizer& optimizer, std::shared_ptr<comm::StoreClient> store,
                  int rank, PerStepOptions options);
  ~PerStepTraining();
  PerStepTraining(const PerStepTraining&) = delete;
  PerStepTraining& operator=(const PerStepTraining&) = delete;

  // Forward and backward: leaves the gradients of this rank's loss, a mean over its samples, and
  // returns that loss. Of several backwards all but the last are under no_sync(); if losses are
  // scaled, all of them. Not called on a rank that joins. It may throw what collectives throw, and
  // may be called again for the same step.
  using Gradients = std::function<double(DistributedDataParallel&, const Turn&)>;
  // Before the update of a step that counts, when the gradients are not scaled any more; the turn's
  // rank is -1 on one that has joined in it.
  using Update = std::function<void(const Turn&)>;
  // One try: does the step count? Error naming the cause if it fails three times though no rank is
  // lost; TimeoutError with the coordinator's words if there will be no quorum any more. False when
  // stop_asked(): nothing was tried.
  bool try_step(const Gradients& gradients, const Update& before_update);

  // After the last step: body on all ranks that are there, again if one is lost meanwhile. When it
  // returns, the training is over for all ranks, and for those that come later.
  void finish(const std::function<void(comm::ProcessGroup&)>& body);

  // Steps that have counted, before begin() too.
  [[nodiscard]] std::int64_t step() const { return first_ + quorum_.step; }
  // Updates that were made, by which a schedule of the learning rate goes: a skipped one is none.
  [[nodiscard]] std::int64_t updates() const { return updates_; }
  // Over before this process could take part: others have done it all.
  [[nodiscard]] bool over() const { return quorum_.over; }
  // The one that does the next step; what the last try did not reach, "" if it counted.
  [[nodiscard]] const comm::store::QuorumAnswer& quorum() const { return quorum_; }
  [[nodiscard]] const std::string& last_failure() const { return failure_; }
  [[nodiscard]] bool joins() const { return place_ >= contributors(); }  // in the next step
  [[nodiscard]] bool is_first() const { return place_ == 0; }            // who speaks for all
  // Of the last step that counted: the mean loss of those whose gradients did.
  [[nodiscard]] double loss() const { return loss_; }
  // Of DDP's gradients, for Begin; empty before the first update.
  [[nodiscard]] const std::vector<int>& ready_order() const { return order_; }
  // A rank was asked to stop; the same on all ranks after each step. No step follows: finish().
  [[nodiscard]] bool stop_asked() const { return stop_asked_; }

 private:
  [[nodiscard]] int members() const { return static_cast<int>(quorum_.ranks.size()); }
  [[nodiscard]] int contributors() const { return members() - quorum_.joining; }
  void compare(const char* key, const comm::Settings& mine) const;
  void begin();
  void ask(comm::store::Vote vote, bool last);
  bool attempt(const std::function<void()>& body, bool last);
  void meet();
  void start_transfers();
  [[nodiscard]] Snapshot state() const;
  void load(const Snapshot& state);
  void add_zeros();
  void leave(bool failed);
  [[nodiscard]] std::vector<Tensor> trained_parameters() const;
  void average_over_contributors() const;
  void exchange_losses(double loss);
  void at(PerStepMoment moment) const {
    if (options_.at) options_.at(moment);
  }

  Module& model_;
  Optimizer& optimizer_;
  PerStepOptions options_;
  std::shared_ptr<comm::StoreClient> store_;
  int rank_;
  GradScaler unscaled_{{.enabled = false}};
  GradScaler& scaler_;
  comm::store::QuorumAnswer quorum_;
  int place_ = 0;           // in the quorum
  std::int64_t met_ = 0;    // the quorum of the group
  std::vector<int> order_;  // of DDP's gradients
  std::shared_ptr<comm::ProcessGroup> group_;
  std::unique_ptr<DistributedDataParallel> ddp_;
  StateTransfers transfers_;
  std::int64_t first_ = 0;  // step of the training: the coordinator counts from 0
  std::int64_t updates_ = 0;
  double loss_ = 0, new_loss_ = 0;
  std::string failure_;
  bool stop_asked_ = false, new_stop_asked_ = false;
  int failures_in_a_row_ = 0;  // in which nobody was lost
};

}  // namespace ringsmith
