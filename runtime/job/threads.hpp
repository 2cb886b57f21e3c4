// Ranks as threads, one or several per process. With k ranks per process, process p holds the ranks
// from p * k to p * k + k - 1. ThreadSanitizer and debuggers see all ranks of a process. The GPUs
// of one process can access each other's memory through plain pointers.
//
//     thread 0 --.                                        .--> thread 0
//     thread 1 ---+--> the last one asks the processes ---+--> thread 1
//     thread 2 --'     (one exchange for all of them)     '--> thread 2
//
// run_as_threads() starts the threads and waits for them.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/comm/types/bootstrap.hpp"

namespace ringsmith::comm {

// A job of one rank: every collective is a copy.
class SelfBootstrap : public Bootstrap {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override {
    return {record};
  }
};

// Where one process's threads meet. The last thread to arrive exchanges the records through the
// bootstrap between the processes.
class ThreadRendezvous {
 public:
  explicit ThreadRendezvous(int world)  // one process for the whole job
      : ThreadRendezvous(std::make_shared<SelfBootstrap>(), world) {}
  ThreadRendezvous(std::shared_ptr<Bootstrap> processes, int ranks_per_process)
      : processes_(std::move(processes)), mine_(static_cast<std::size_t>(ranks_per_process)) {}
  [[nodiscard]] Bootstrap& processes() const { return *processes_; }
  [[nodiscard]] int ranks_per_process() const { return static_cast<int>(mine_.size()); }
  // Throws UsageError on all threads if another process has a different number of ranks. An error
  // of the exchange is rethrown on all threads. Throws PeerLost if a thread has left.
  [[nodiscard]] std::vector<std::string> all_gather(int thread, const std::string& record);
  // Declares that this thread joins no further exchange. Threads that wait for it throw PeerLost.
  void leave(int thread);

 private:
  [[nodiscard]] std::vector<std::string> exchange() const;

  std::shared_ptr<Bootstrap> processes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> mine_, result_;
  std::exception_ptr error_;
  std::size_t arrived_ = 0;
  int generation_ = 0;
  int left_ = -1;  // the first thread that has left, or -1
};

class ThreadBootstrap : public Bootstrap {
 public:
  ThreadBootstrap(std::shared_ptr<ThreadRendezvous> rendezvous, int thread)
      : rendezvous_(std::move(rendezvous)), thread_(thread) {}
  [[nodiscard]] int rank() const override {
    return rendezvous_->processes().rank() * rendezvous_->ranks_per_process() + thread_;
  }
  [[nodiscard]] int size() const override {
    return rendezvous_->processes().size() * rendezvous_->ranks_per_process();
  }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override {
    return rendezvous_->all_gather(thread_, record);
  }
  void abandon() override { rendezvous_->processes().abandon(); }
  [[nodiscard]] bool ends_survivors() const override {
    return rendezvous_->processes().ends_survivors();
  }

 private:
  std::shared_ptr<ThreadRendezvous> rendezvous_;
  int thread_;
};

// Runs body(thread, bootstrap) once for each rank of this process, each on its own thread, and
// waits for all of them. Returns each thread's exception, or null. A thread that cannot be started
// has the exception of std::thread.
[[nodiscard]] std::vector<std::exception_ptr> run_as_threads(
    const std::shared_ptr<ThreadRendezvous>& rendezvous,
    const std::function<void(int thread, std::shared_ptr<Bootstrap>)>& body);

}  // namespace ringsmith::comm
