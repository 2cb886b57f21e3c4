// PerStepTraining: data-parallel training that survives the loss of ranks within a step, and that
// admits new ranks while it runs.
//
//   step      6         7          7 again       8           9          10
//   rank 0  [====]....[== x ]....[======]....[======]....[======]....[====]
//   rank 1  [====]....[== x ]....[======]....[======]....[======]....[====]
//   rank 2  [====]....[=  killed                started, [ state ]....[====]
//   rank 3  [====]....[== x ]....[======]....[======]....  joins .....[====]
//                ^ vote     ^ fails immediately: the first rank to notice aborts the group
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
// - Before each step all ranks ask the coordinator (runtime/job/store/coordinator.hpp) which ranks
//   are present. While the answer is the same they keep their group; otherwise they create a new
//   group, and DDP's buckets on it, in the known order. No process restarts, and no parameters are
//   sent, because all ranks that are left have the same ones.
// - When a collective fails, the rank aborts the group, so that its peers learn of it within
//   milliseconds, and votes that the step does not count. The ranks that are still present then
//   repeat the step: gradients are averaged over them and samples are distributed among them.
// - The optimizer steps only if the step counts, on all ranks or on none. With a GradScaler, a step
//   whose gradients are infinite or NaN counts, but all ranks skip its update: they inspect the
//   same reduced gradients, including a rank that joins in this step.
// - A rank that joins is a member of its first step and adds zeros to the gradients, which are
//   averaged over the other ranks. Meanwhile one of them sends it the state from the beginning of
//   the step, over a separate connection, on a thread that runs concurrently with forward and
//   backward. If the step counts, the new rank applies the same update to that state and is then
//   equal to the others.
//
// Bits. Every sum depends on the members and their order, and the order depends on the history of
// which ranks were present in which step (seniority). With the same history, a training run
// reproduces the same bits; without a failure, these equal DistributedDataParallel's.
//
// A failure costs the current step, on all ranks. A step waits for a joining rank's state: if
// sending it takes longer than a step, all ranks wait. The training ends if no rank with the state
// is left, if too few ranks are present for too long, or if the launcher ends. As a precaution, the
// first rank can save the common state between two steps; in a later job all ranks begin with it
// (PerStepOptions::begin). If the first rank is lost, another takes its place.
//
// Stopping. Once the step has counted, all ranks know of a signal to any rank
// (PerStepOptions::stop): stop_asked() is true. Each then calls finish() with a body that saves.
//
// The idea is torchft's (github.com/pytorch/torchft): quorum, vote, zeros from ranks that recover.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/amp/grad_scaler.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/job/store/client.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/beyond/state_transfer.hpp"
#include "runtime/parallel/ddp.hpp"
#include "runtime/parallel/stop_request.hpp"

namespace ringsmith {

// This rank's position among the ranks whose gradients count in a step.
struct Turn {
  std::int64_t step = 0;
  int rank = 0, ranks = 1;
};

// Points at which a test may end a rank.
enum class PerStepMoment : std::uint8_t { meeting, sending, receiving, voting, counted };

struct PerStepOptions {
  // The start of a training run that continues an earlier one, whose state model and optimizer
  // hold.
  struct Begin {
    std::int64_t step = 0, updates = 0;  // done before
    std::vector<int> ready_order = {};   // PerStepTraining::ready_order() at that time
    // Identifies the state by name and contents, for comparison among the ranks.
    std::string from;
  };
  // Options of every quorum's group. Every rank that arrives compares its settings, and the model's
  // names, shapes and dtypes, with the first rank's.
  comm::GroupOptions group;
  DdpOptions ddp;
  // Scales the losses, if set; must outlive the training. It needs no any_rank.
  GradScaler* scaler = nullptr;
  // State beyond parameters, buffers and the states of optimizer and scaler: save() runs on a rank
  // that has the state, load() on a rank that joins, before the update of its first step.
  std::function<Metadata()> save = {};
  std::function<void(const Metadata&)> load = {};
  // Called once, after the first quorum has formed, on each rank that begins the training, but not
  // on a rank that joins later. Empty: the training begins at step 0.
  std::function<Begin(bool is_first)> begin = {};
  const StopRequest* stop = nullptr;           // of this process; must outlive the training
  std::function<void(PerStepMoment)> at = {};  // for tests
};

// Opens this process's connection to the coordinator of the ringrun --per-step that started it.
// Throws UsageError if there is none, and TimeoutError if it does not answer.
[[nodiscard]] std::shared_ptr<comm::StoreClient> connect_to_coordinator(
    std::chrono::milliseconds timeout);

class PerStepTraining {
 public:
  // Blocks until the first quorum. rank: this process's number in the job. The model must have the
  // same values on all ranks that start together. Model and optimizer must outlive this object.
  // Throws UsageError for DDP's static_graph and ignored (a rank that joins has all gradients and
  // needs all of the state), and for the first difference between this rank's settings or initial
  // state and the first rank's.
  PerStepTraining(Module& model, Optimizer& optimizer, std::shared_ptr<comm::StoreClient> store,
                  int rank, PerStepOptions options);
  ~PerStepTraining();
  PerStepTraining(const PerStepTraining&) = delete;
  PerStepTraining& operator=(const PerStepTraining&) = delete;

  // Forward and backward: computes the gradients of this rank's loss, a mean over its samples, and
  // returns that loss. All but the last of several backwards must be under no_sync(); with a
  // scaler, all losses must be scaled. Not called on a rank that joins. The function may throw the
  // errors of collectives, and may be called again for the same step.
  using Gradients = std::function<double(DistributedDataParallel&, const Turn&)>;
  // Tries one step up to the ranks' mean gradients. Returns its turn if it counts: the caller then
  // updates the parameters and calls update_done(). The turn's rank is -1 on a rank that has joined
  // in this step. Throws Error with the cause if a step fails three times although no rank is lost,
  // TimeoutError with the coordinator's message if there will be no further quorum, and CommError
  // if the coordinator has dropped this rank or is lost. Returns nothing, without trying, if
  // stop_asked().
  [[nodiscard]] std::optional<Turn> try_gradients(const Gradients& gradients);
  void update_done(bool made);  // made: false if the GradScaler skipped the update
  // Both, and the update between them; true if the step counts. before_update is called when the
  // gradients have been unscaled.
  using Update = std::function<void(const Turn&)>;
  bool try_step(const Gradients& gradients, const Update& before_update);

  // Call after the last step. Runs body on all ranks that are present, and again if a rank is lost
  // meanwhile. When it returns, the training is over for all ranks, including any that arrive
  // later.
  void finish(const std::function<void(comm::ProcessGroup&)>& body);

  // Steps that have counted, including those before begin().
  [[nodiscard]] std::int64_t step() const { return first_ + quorum_.step; }
  // Updates that were made, not counting skipped ones; learning-rate schedules use this number.
  [[nodiscard]] std::int64_t updates() const { return updates_; }
  // True if the training ended before this process could join it.
  [[nodiscard]] bool over() const { return quorum_.over; }
  // quorum() returns the next step's quorum; last_failure() returns why the last try failed, or ""
  // if it counted.
  [[nodiscard]] const comm::store::QuorumAnswer& quorum() const { return quorum_; }
  [[nodiscard]] const std::string& last_failure() const { return failure_; }
  [[nodiscard]] bool joins() const { return place_ >= contributors(); }  // in the next step
  [[nodiscard]] bool is_first() const { return place_ == 0; }            // this rank acts for all
  // Returns the mean loss of the last step that counted, over the ranks whose gradients counted.
  [[nodiscard]] double loss() const { return loss_; }
  // Returns the order of DDP's gradients, for Begin; empty before the first update.
  [[nodiscard]] const std::vector<int>& ready_order() const { return order_; }
  // True if a rank was asked to stop; the same on all ranks after each step. Call finish() then.
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
  std::int64_t met_ = 0;    // the quorum for which the group was made
  std::vector<int> order_;  // of DDP's gradients
  std::shared_ptr<comm::ProcessGroup> group_;
  std::unique_ptr<DistributedDataParallel> ddp_;
  StateTransfers transfers_;
  std::int64_t first_ = 0;  // steps before this training: the coordinator counts from 0
  std::int64_t updates_ = 0;
  double loss_ = 0, new_loss_ = 0;
  std::string failure_;
  bool stop_asked_ = false, new_stop_asked_ = false;
  int failures_in_a_row_ = 0;  // without a lost rank
};

}  // namespace ringsmith
