// The checkpoints of a training program: their contents besides model and optimizer, and how the
// ranks jointly write a checkpoint and continue from one.
//
// Rank 0 writes everything into one folder with one manifest (runtime/checkpoint/snapshot.hpp),
// after it has gathered the only state that differs between ranks, their random numbers (7 KB
// each). So one rename completes a checkpoint. No shared file system is needed, because rank 0
// reads for all ranks.
//
//   rank 0   model, optimizer --copy--> writer thread --> checkpoints/step-000200/
//            sampler, losses, options ----^
//   rank r   random numbers --gather------^
//
// A resumed run has the losses and the model of an uninterrupted run, bit for bit, if the options,
// the number of ranks, the program, the libraries and the kind of processor or GPU are the same,
// and with --device cuda the device of each rank. The exception is --comm-hook powersgd, whose
// state is not saved.
//
// With --per-step any rank may be lost, including the writer. Therefore each rank has a
// RunCheckpoints for a group of only itself: all ranks read, and the current first rank writes
// (per_step.cpp).
//
// Only sound checkpoints are written: a checkpoint is held until the loss of the next step, or of
// the evaluation at the end, turns out to be finite (CheckpointManager::hold). Training continues
// from one if its tensors are finite, its optimizer's state is valid, and a trial of the next batch
// gives a finite loss. --resume auto reports and skips all others.
//
// A run can be resumed on a different number of ranks. The rest of the epoch is distributed over
// the new ranks without repeated samples (SamplerState). Rank r continues with the random numbers
// of the earlier rank r; a new rank starts with manual_seed(seed + 1 + r + 1'000'003 * step). The
// ranks' sums are rounded differently than in the earlier run.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "labs/apps/train/data.hpp"
#include "labs/apps/train/options.hpp"
#include "runtime/amp/grad_scaler.hpp"
#include "runtime/checkpoint/manager.hpp"
#include "runtime/nn/module.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/ddp.hpp"

namespace ringsmith::apps {

// Training state that is not a tensor, as text; the same on all ranks.
struct RunState {
  std::string name;
  std::function<std::string()> save;
  std::function<void(const std::string&)> load;
};
// sampler_state: the position in the epoch. order_state: the order of DDP's buckets; an empty order
// means that the order is not known yet, and is not loaded.
[[nodiscard]] RunState sampler_state(std::function<SamplerState()> save,
                                     std::function<void(const SamplerState&)> load);
[[nodiscard]] RunState order_state(std::function<std::vector<int>()> save,
                                   std::function<void(const std::vector<int>&)> load);
[[nodiscard]] std::vector<RunState> states_of(Batches& batches, DistributedDataParallel& ddp);

// The training run to save or resume. RunCheckpoints adds the options that all programs share.
struct Trained {
  Module& model;
  Optimizer& optimizer;
  GradScaler& scaler;
  std::vector<RunState> states;
  int ranks;
  std::int64_t batch_size;            // of one rank
  std::int64_t steps;                 // of the whole run
  std::function<double()> next_loss;  // of this rank's next batch; see accumulate.hpp
  std::string data;                   // identity of the training data, as text
  comm::Settings fixed;               // must be unchanged; other changed options are only reported
  comm::ProcessGroup* replicas = nullptr;  // the ranks whose parameters are equal; null: all
};

// "12345 bytes with SHA-256 0123456789abcdef..."
[[nodiscard]] std::string identity_of(const std::vector<std::span<const std::byte>>& data);

struct Reached {
  std::int64_t step = 0;
  double first_loss = 0, last_loss = 0;  // means over all ranks
  std::int64_t skipped = 0;              // number of steps skipped by GradScaler
};

[[nodiscard]] inline bool saves_when_stopped(const TrainOptions& o) {
  return !o.run_dir.empty() || o.save_every > 0 || !o.resume.empty();
}

[[nodiscard]] std::string how_to_continue(std::int64_t step, std::int64_t steps,
                                          const std::string& folder);

class RunCheckpoints {
 public:
  using Say = std::function<void(const std::string&)>;
  RunCheckpoints(comm::ProcessGroup& group, const TrainOptions& options, Say say);

  // On rank 0. Creates the run's folder, or reopens it for --resume auto. Locks its checkpoints, if
  // --save-every or --resume auto is given, and reads the checkpoint of --resume. Returns the
  // folder. Throws UsageError, and Error if the disk is full.
  [[nodiscard]] std::string open_folder();

  // Replaces open_folder() for --per-step, where all ranks share the folder: reads the checkpoint
  // of --resume, and does not lock.
  void look_in(const std::string& folder);
  // Call it on the rank that writes checkpoints from now on. Waits for at most `patience` for the
  // lock of the previous writer, which may still be ending.
  void take_lock(std::chrono::milliseconds patience);
  // Name and digest of the checkpoint that resume() has loaded, if any.
  [[nodiscard]] const std::string& resumed_from() const { return resumed_from_; }

  // Sets the training run to save; resume() does this, too. `trained` must outlive this object.
  void describe(const Trained& trained);
  // Collective. Returns the progress restored from the checkpoint; step 0 without one. Throws
  // UsageError on one rank and QuietStop on the others if the checkpoint is of another training run
  // or unusable, or if the ranks see different checkpoints. The argument must outlive this object.
  [[nodiscard]] Reached resume(const Trained& trained);

  [[nodiscard]] bool due(std::int64_t step) const;
  // Collective, at the end of a step. Takes a checkpoint, which prove() writes, if one is due or
  // `last` is true. Throws like require_finite() (evaluate.hpp).
  void step_done(const Reached& reached, bool last);
  // Writes the held checkpoint. Call it when the loss of the step after the checkpoint is finite.
  void prove();
  // Collective. Throws unless the model and the optimizer state are finite.
  void require_sound(std::int64_t step) const;
  // On the rank that writes: true if the writer thread has failed and the error has not been
  // reported.
  [[nodiscard]] bool failed() const { return manager_ && manager_->failed(); }
  // On the rank that writes: true if the previous checkpoint is on the disk, now or within
  // `patience`.
  [[nodiscard]] bool ready(std::chrono::milliseconds patience) {
    return !manager_ || manager_->wait_for(patience);
  }
  // After failed() on one rank: throws the writer's error there, and QuietStop on the other ranks.
  [[noreturn]] void stop(std::int64_t step);
  // Collective, when the model has proved sound. Blocks until the last checkpoint is on the disk.
  void finish(std::int64_t step);

 private:
  [[nodiscard]] bool is_auto() const { return options_.resume == "auto"; }
  [[nodiscard]] std::string checkpoints() const;
  [[nodiscard]] std::optional<Snapshot> newest();
  void examine(const Snapshot& snapshot, const std::string& path) const;
  void read_given();
  void check_same_files();
  void check(const Trained& trained) const;
  void load(const Snapshot& snapshot);
  void announce(const Snapshot& snapshot) const;
  void await_writer(std::int64_t step);

  comm::ProcessGroup& group_;
  const TrainOptions& options_;
  Say say_;
  std::optional<Trained> trained_;
  comm::Settings fixed_, free_;
  // Only on rank 0.
  std::string folder_;                          // of the run
  std::unique_ptr<CheckpointManager> manager_;  // if checkpoints are written or searched for
  std::optional<Snapshot> found_;
  std::string found_path_, resumed_from_;
  std::map<std::int64_t, std::string> refused_;  // steps of rejected checkpoints, and why
  std::set<std::string> said_;                   // skipped checkpoints that were reported
};

}  // namespace ringsmith::apps
