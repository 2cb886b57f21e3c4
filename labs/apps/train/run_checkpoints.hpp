// The checkpoints of a training program: what belongs to one beside model and optimizer, how all
// ranks write one together, and how a run goes on from one.
//
// Rank 0 writes everything, in one folder with one manifest (runtime/checkpoint/snapshot.hpp). What
// the ranks have of their own, the state of their random numbers, is gathered on it: 7 KB a rank.
// So a checkpoint is whole or not by one rename, no rank waits for the disk of another, and neither
// writing nor reading needs a file system that the ranks share: rank 0 sends them what it reads.
//
//   rank 0   model, optimizer --copy--> writer thread --> checkpoints/step-000200/
//            sampler, losses, options ----^
//   rank r   random numbers --gather------^
//
// Bit for bit. A resumed run has the losses and the model of one that never stopped if the options,
// the number of ranks, the program, the libraries and the kind of processor or GPU are the same;
// with --device cuda also the device of each rank. Then every number is computed from the same
// numbers in the same order: the order of the buckets, which decides the order of the sums, is in
// the checkpoint too. Not with --comm-hook powersgd, whose state is in none: a line says so.
//
// With --per-step any rank may be lost, the writing one too. There each rank has a RunCheckpoints
// on a group of itself alone: all read, and the first one at the time writes (per_step.cpp).
//
// Sound ones only. A checkpoint is written when the loss of the step after it, or of the evaluation
// at the end, is finite (CheckpointManager::hold); until then it replaces nothing. Training
// continues from a checkpoint if its tensors are finite, its optimizer's state is possible, and a
// trial gives the next batch a finite loss. --resume auto skips any other checkpoint, and says so.
//
// Other ranks. What is left of the epoch is dealt out to them (SamplerState): no sample comes
// twice, and none is left out but what makes no full batch at the end. Rank r goes on with the
// random numbers of the earlier rank r; a rank that had none begins with manual_seed(seed + 1 + r +
// 1'000'003 * step). Sums are rounded in another order from there on.
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

// A part of the training's state that is no tensor, as text; the same on all ranks.
struct RunState {
  std::string name;
  std::function<std::string()> save;
  std::function<void(const std::string&)> load;
};
// Place in the epoch; the order of DDP's buckets (empty: not known yet, and not loaded).
[[nodiscard]] RunState sampler_state(std::function<SamplerState()> save,
                                     std::function<void(const SamplerState&)> load);
[[nodiscard]] RunState order_state(std::function<std::vector<int>()> save,
                                   std::function<void(const std::vector<int>&)> load);
[[nodiscard]] std::vector<RunState> states_of(Batches& batches, DistributedDataParallel& ddp);

// The training to save or resume, with the program's own options; RunCheckpoints adds the shared
// options.
struct Trained {
  Module& model;
  Optimizer& optimizer;
  GradScaler& scaler;
  std::vector<RunState> states;
  int ranks;
  std::int64_t batch_size;            // of a rank
  std::int64_t steps;                 // of the whole run
  std::function<double()> next_loss;  // of the next batch of this rank; see accumulate.hpp
  std::string data;                   // the identity of the training data, in words
  comm::Settings fixed;               // must be unchanged; a line names other options that changed
};

// "12345 bytes with SHA-256 0123456789abcdef...", for checkpoints and for the ranks to compare.
[[nodiscard]] std::string identity_of(const std::vector<std::span<const std::byte>>& data);

struct Reached {
  std::int64_t step = 0;
  double first_loss = 0, last_loss = 0;  // of all ranks
  std::int64_t skipped = 0;              // steps, by GradScaler
};

// Does the run save when a signal asks it to stop? If it was told where, or how often.
[[nodiscard]] inline bool saves_when_stopped(const TrainOptions& o) {
  return !o.run_dir.empty() || o.save_every > 0 || !o.resume.empty();
}

// For people, when all ranks have saved because a signal asked them to stop.
[[nodiscard]] std::string how_to_continue(std::int64_t step, std::int64_t steps,
                                          const std::string& folder);

class RunCheckpoints {
 public:
  using Say = std::function<void(const std::string&)>;
  RunCheckpoints(comm::ProcessGroup& group, const TrainOptions& options, Say say);

  // On rank 0: the run's folder, made or, for --resume auto, reopened; takes the lock of its
  // checkpoints, and reads the one of --resume. UsageError.
  [[nodiscard]] std::string open_folder();

  // With --per-step, where each rank has a group of itself alone and all ranks share the folder.
  // Replaces open_folder(): reads the checkpoint of --resume, and takes no lock.
  void look_in(const std::string& folder);
  // On the rank that writes from now on. The previous writer may still be ending: waits for its
  // lock at most as long as patience.
  void take_lock(std::chrono::milliseconds patience);
  // The checkpoint that resume() has loaded, by its name and contents; "" if none.
  [[nodiscard]] const std::string& resumed_from() const { return resumed_from_; }

  // Names the training, for a rank that does not resume(). It must live as long as this object.
  void describe(const Trained& trained);
  // Collective. The step at which the run continues: 0 without a checkpoint. UsageError, on one
  // rank, if the checkpoint is of another training or the ranks see different checkpoints. The
  // argument must live as long as this object.
  [[nodiscard]] Reached resume(const Trained& trained);

  [[nodiscard]] bool due(std::int64_t step) const;
  // Collective, at the end of a step: takes a checkpoint if it is due, or if the step is the last,
  // to be written by prove(). Throws as require_finite (evaluate.hpp) does.
  void step_done(const Reached& reached, bool last);
  // The loss after the last checkpoint is finite.
  void prove();
  // Collective. Throws unless model and optimizer are finite, as they are now.
  void require_sound(std::int64_t step) const;
  // On the rank that writes: an error of the writer waits to be told.
  [[nodiscard]] bool failed() const { return manager_ && manager_->failed(); }
  // On that rank: whether the checkpoint before is written, now or within so long.
  [[nodiscard]] bool ready(std::chrono::milliseconds patience) {
    return !manager_ || manager_->wait_for(patience);
  }
  // All ranks, when one has said failed(): throws that error, on the others QuietStop.
  [[noreturn]] void stop(std::int64_t step);
  // Collective, when the model has proved sound: until the last checkpoint is on the disk.
  void finish(std::int64_t step);

 private:
  [[nodiscard]] bool is_auto() const { return options_.resume == "auto"; }
  [[nodiscard]] std::string checkpoints() const;  // their folder
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
  // On rank 0.
  std::string folder_;                          // of the run
  std::unique_ptr<CheckpointManager> manager_;  // if checkpoints are written or looked for
  std::optional<Snapshot> found_;
  std::string found_path_, resumed_from_;
  std::map<std::int64_t, std::string> refused_;  // steps of checkpoints that were tried, and why
  std::set<std::string> said_;                   // reasons for skipped checkpoints, already printed
};

}  // namespace ringsmith::apps
