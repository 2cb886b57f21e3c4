// CheckpointManager: the checkpoints of one training, written while it goes on.
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
// save() takes the time of a copy in memory; at most one checkpoint is being written, so a save()
// that comes before the last one is on the disk waits for it. The memory of one copy more is needed
// meanwhile.
//
// A state from which training cannot continue must not replace a good one. Finite numbers prove
// little: parameters of 1e30 are finite, but their loss is not. The next step's loss proves the
// state at no cost, so hold() the copy until then, and release() it if the loss is finite:
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
  // On one rank. Makes the folder if there is none (its parent exists), and holds it as long as it
  // lives: a second manager, of this or another process, is refused. keep: how many checkpoints
  // stay, at least 1; older ones are removed when a newer one is on the disk, so a kill between the
  // two leaves one more, until the next save(). UsageError naming the folder and the remedy.
  explicit CheckpointManager(std::string folder, int keep = 3);
  ~CheckpointManager();  // waits for the writer; an error that nobody has asked for is lost
  CheckpointManager(const CheckpointManager&) = delete;
  CheckpointManager& operator=(const CheckpointManager&) = delete;

  // The newest that can be used; none if there is none. Those that cannot are skipped, with a line
  // that says which and why, and do not count among the `keep`. examine: throws UsageError for one
  // that is whole and still of no use.
  [[nodiscard]] std::optional<Snapshot> load_newest(
      const std::function<void(const std::string&)>& skipped,
      const std::function<void(const Snapshot&)>& examine = [](const Snapshot&) {});

  // Copies the tensors, then writes folder/step-N beside the caller. Throws what wait() would.
  void save(Snapshot snapshot);
  // The two halves of save(); hold() throws as wait() does. A copy that is dropped, or still held
  // at destruction, is not written. release() and drop() do nothing if no copy is held.
  void hold(Snapshot snapshot);
  void release();
  void drop() { held_.reset(); }
  // Whether the last write has failed by now. Does not wait.
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Until the last save() is on the disk. Throws why it is not, once.
  void wait();
  // Whether that took no longer than so; throws nothing.
  [[nodiscard]] bool wait_for(std::chrono::milliseconds most);

  [[nodiscard]] const std::string& folder() const { return folder_; }

 private:
  void work();
  void write(const Snapshot& snapshot);

  std::size_t keep_;
  std::string folder_;
  Descriptor lock_;
  std::set<std::string> useless_;  // paths that load_newest() skipped
  std::optional<Snapshot> held_;   // a copy

  std::mutex mutex_;  // guards the next three
  std::condition_variable changed_;
  std::optional<Snapshot> job_;  // until it is written
  std::exception_ptr error_;
  bool stop_ = false;
  std::atomic<bool> failed_{false};
  std::thread writer_;  // from the first save() on
};

}  // namespace ringsmith
