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
//   while (training.step() < steps) {
//     const auto turn = training.try_gradients([&](DistributedDataParallel& ddp, const Turn& t) {
//       const Batch batch = dataset.get(sampler.indices(t.rank, t.ranks));
//       const Tensor loss = cross_entropy(ddp.forward(batch.inputs), batch.targets);
//       loss.backward();
//       return double{loss.item<float>()};
//     });
//     if (!turn) continue;  // a rank was lost
//     sampler.step_done(turn->ranks);
//     optimizer.step();
//     training.update_done(true);
//   }
//   training.finish([&](comm::ProcessGroup& group) { ... });
//
// - Before each step all ranks ask the coordinator (runtime/job/store/coordinator.hpp) which ranks
//   are present. As long as the answer stays the same, they keep their group. Otherwise they create
//   a new group, and DDP's buckets on it. No process restarts, and the remaining ranks exchange no
//   parameters, because theirs are equal.
// - When a collective fails, the rank aborts the group, so that its peers fail within milliseconds,
//   and votes that the step does not count. The ranks that are still present repeat the step, and
//   share its samples among them.
// - The optimizer steps only if the step counts, on all ranks or on none. With a GradScaler, a step
//   with infinite or NaN gradients counts, but all ranks skip its update.
// - A rank that joins takes part in its first step with zero gradients; the sum is divided by the
//   number of ranks that have the state. During the step, one of these ranks sends the new rank the
//   state from the beginning of the step, over a separate connection and from a separate thread. If
//   the step counts, the new rank applies the same update to that state, and its replica equals the
//   others.
//
// Reproducibility. Every sum depends on the members and their order, and the order depends on which
// ranks were present in which step (seniority). With the same history, a training run gives the
// same bits again; without a failure, these equal DistributedDataParallel's.
//
// A failure costs the current step, on all ranks. If sending the state to a joining rank takes
// longer than the step, all ranks wait. The run ends if no rank with the state is left, if too few
// ranks are present for too long, or if the launcher exits. The first rank may save the state
// between two steps, for a later job (PerStepOptions::begin).
//
// Stopping. A signal to any rank (PerStepOptions::stop) makes stop_asked() true on all ranks once
// the step has counted. After that, each rank calls finish() with a body that saves the state.
//
// The idea is torchft's (github.com/pytorch/torchft): quorum, vote, zeros from ranks that recover.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
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

// Points at which a test may kill a rank.
enum class PerStepMoment : std::uint8_t { meeting, sending, receiving, voting, counted };

struct PerStepOptions {
  // The start of a training run whose model and optimizer already hold the state of an earlier one.
  struct Begin {
    std::int64_t step = 0, updates = 0;  // made before this run
    std::vector<int> ready_order = {};   // PerStepTraining::ready_order() at that time
    // Identifies the state by name and contents; the ranks compare this text.
    std::string from;
  };
  // Options of every quorum's group. Each rank that arrives compares its GroupOptions::settings,
  // and its model's names, shapes and dtypes, with the first rank's.
  comm::GroupOptions group;
  DdpOptions ddp;
  // Scales the losses, if set; must outlive the training object. It needs no any_rank.
  GradScaler* scaler = nullptr;
  // State beyond parameters, buffers and the states of optimizer and scaler. save() runs on a rank
  // that has the state; load() runs on a rank that joins, before the update of its first step.
  std::function<Metadata()> save = {};
  std::function<void(const Metadata&)> load = {};
  // Called once, after the first quorum, on each rank that begins the training run, but not on
  // ranks that join later. If it is empty, the run begins at step 0.
  std::function<Begin(bool is_first)> begin = {};
  const StopRequest* stop = nullptr;           // of the process; must outlive PerStepTraining
  std::function<void(PerStepMoment)> at = {};  // for tests
};

// Opens this process's connection to the coordinator of the ringrun --per-step that started it.
// Throws UsageError if this job has no coordinator, and TimeoutError if the coordinator does not
// answer.
[[nodiscard]] std::shared_ptr<comm::StoreClient> connect_to_coordinator(
    std::chrono::milliseconds timeout);

class PerStepTraining {
 public:
  // Blocks until the first quorum. rank: this process's number in the job. The model must have the
  // same values on all ranks that start together. Model and optimizer must outlive this object.
  // Throws UsageError if DDP's static_graph or ignored is set (a joining rank contributes every
  // gradient and needs the whole state), or if this rank's settings or initial state differ from
  // the first rank's.
  PerStepTraining(Module& model, Optimizer& optimizer, std::shared_ptr<comm::StoreClient> store,
                  int rank, PerStepOptions options);
  ~PerStepTraining();
  PerStepTraining(const PerStepTraining&) = delete;
  PerStepTraining& operator=(const PerStepTraining&) = delete;

  // Forward and backward: computes the gradients of this rank's loss, a mean over its samples, and
  // returns that loss. All but the last of several backward passes must be under no_sync(). With a
  // scaler, all losses must be scaled. This function is not called on a rank that joins. It may
  // throw, and may be called again for the same step.
  using Gradients = std::function<double(DistributedDataParallel&, const Turn&)>;
  // Tries one step, up to and including the averaging of the gradients. If the step counts, returns
  // its turn, whose rank is -1 on a rank that has joined in this step. The caller must update the
  // parameters and call update_done(). Throws Error with the cause if a step fails three times
  // although no rank is lost, TimeoutError with the coordinator's message if there will be no
  // further quorum, and CommError if the coordinator has dropped this rank or is lost. Returns
  // nothing if the step does not count or, without calling `gradients`, if stop_asked() is true.
  [[nodiscard]] std::optional<Turn> try_gradients(const Gradients& gradients);
  void update_done(bool made);  // made: false if the GradScaler skipped the update

  // Call this after the last step. Runs body on all ranks that are present, and again if a rank is
  // lost while body runs. When finish() returns, the run is over, even for ranks that arrive later.
  void finish(const std::function<void(comm::ProcessGroup&)>& body);

  // Number of steps that have counted, including Begin::step.
  [[nodiscard]] std::int64_t step() const { return first_ + quorum_.step; }
  // Number of these steps whose update was not skipped. Learning-rate schedules use this number.
  [[nodiscard]] std::int64_t updates() const { return updates_; }
  // True if the run ended before this process could join it.
  [[nodiscard]] bool over() const { return quorum_.over; }
  // The next step's quorum, and why the last attempt failed ("" if it counted).
  [[nodiscard]] const comm::store::QuorumAnswer& quorum() const { return quorum_; }
  [[nodiscard]] const std::string& last_failure() const { return failure_; }
  [[nodiscard]] bool joins() const { return place_ >= contributors(); }  // in the next step
  [[nodiscard]] bool is_first() const { return place_ == 0; }  // this rank logs and saves for all
  // Mean loss over the ranks whose gradients counted in the last counted step.
  [[nodiscard]] double loss() const { return loss_; }
  // The order of DDP's gradients, for Begin; empty before the first update.
  [[nodiscard]] const std::vector<int>& ready_order() const { return order_; }
  // True if any rank was asked to stop. All ranks agree on the value after each step that counts.
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
  void correct_averages() const;
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
  int place_ = 0;           // this rank's position in the quorum
  std::int64_t met_ = 0;    // id of the quorum for which the group was made
  std::vector<int> order_;  // of DDP's gradients
  std::shared_ptr<comm::ProcessGroup> group_;
  std::unique_ptr<DistributedDataParallel> ddp_;
  StateTransfers transfers_;
  std::int64_t first_ = 0;  // steps before this run: the coordinator counts from 0
  std::int64_t updates_ = 0;
  double loss_ = 0, new_loss_ = 0;
  std::string failure_;
  bool stop_asked_ = false, new_stop_asked_ = false;
  int failures_in_a_row_ = 0;  // failures without a lost rank
};

}  // namespace ringsmith
