// CheckpointManager: the checkpoints of one training run, written while it continues.
//
//   training  ...step 199, step 200 |copy| step 201, step 202, step 203 ...
//   writer                               |--write, fsync, manifest--|remove the oldest|
//
//   CheckpointManager checkpoints("run/checkpoints");
//   if (const auto snapshot = checkpoints.load_newest(print)) {
//     model.load_state_dict(snapshot->tensors.at("model"));
//     optimizer.load_state_dict(snapshot->tensors.at("optimizer"));
//     set_rng_state(snapshot->values.at("rng"));  ...
//   }
//   for (...) {
//     ...
//     if (step % 100 == 0)
//       checkpoints.save({step,
//                         {{"model", model.state_dict()}, {"optimizer", optimizer.state_dict()}},
//                         {{"rng", get_rng_state()}}});
//   }
//   checkpoints.wait();
//
// save() takes as long as a copy in memory. Only one checkpoint is written at a time: save() blocks
// until the previous one is on the disk.
//
// A state from which training cannot continue must not replace a good checkpoint. Finite parameters
// are not enough: with parameters of 1e30 the loss is not finite. The next step's loss checks the
// state at no cost, so hold() the copy until that loss is known, and release() it if the loss is
// finite:
//
//   step 200 |hold| step 201: loss 2.1 |release: written|       step 201: loss NaN |drop|
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "runtime/base/process.hpp"
#include "runtime/checkpoint/snapshot.hpp"

namespace ringsmith {

class CheckpointManager {
 public:
  // For one rank only. Creates the folder if it does not exist (its parent must exist), and locks
  // it for this object's lifetime: the constructor of another manager, in this or another process,
  // throws if the file system supports locks. keep: number of checkpoints to keep, at least 1.
  // Older ones are removed only once a newer one is on the disk. Throws UsageError naming the
  // folder and the remedy, and Error if the disk is full.
  explicit CheckpointManager(std::string folder, int keep = 3);
  ~CheckpointManager();  // waits for the writer; an error that wait() has not thrown is lost
  CheckpointManager(const CheckpointManager&) = delete;
  CheckpointManager& operator=(const CheckpointManager&) = delete;

  // Returns the newest usable checkpoint, if any. Unusable ones are skipped, reported to `skipped`
  // with the reason, and do not count towards `keep`. `examine` must throw UsageError for a
  // checkpoint that is intact but cannot be used. Throws as wait() does.
  [[nodiscard]] std::optional<Snapshot> load_newest(
      const std::function<void(const std::string&)>& skipped,
      const std::function<void(const Snapshot&)>& examine = [](const Snapshot&) {});

  // Copies the tensors, and writes folder/step-N on another thread. Throws as wait() does.
  void save(Snapshot snapshot);
  // The two halves of save(); hold() throws as wait() does. A copy that is dropped, or still held
  // at destruction, is not written. release() and drop() are no-ops if no copy is held.
  void hold(Snapshot snapshot);
  void release();
  void drop() { held_.reset(); }
  // True if the last write has failed and wait() has not been called since.
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Blocks until the last save() is on the disk. Throws its error, once.
  void wait();
  // Blocks for at most `most`. Returns true if the last save() has ended, and never throws its
  // error.
  [[nodiscard]] bool wait_for(std::chrono::milliseconds most);

  [[nodiscard]] const std::string& folder() const { return folder_; }

 private:
  void work();
  void write(const Snapshot& snapshot);

  std::size_t keep_;
  std::string folder_;
  Descriptor lock_;
  std::set<std::string> useless_;  // paths that load_newest() skipped
  std::optional<Snapshot> held_;   // in host memory

  std::mutex mutex_;  // guards job_, error_ and stop_
  std::condition_variable changed_;
  std::optional<Snapshot> job_;  // until it is written
  std::exception_ptr error_;
  bool stop_ = false;
  std::atomic<bool> failed_{false};
  std::thread writer_;  // from the first save() on
};

}  // namespace ringsmith
