// Several ranks in each process, one a thread: process p of n, with k ranks a process, holds ranks
// p k to p k + k - 1 of n k. GPUs of one process reach each other by plain pointers.
//
//     thread 0 --.                                      .--> thread 0
//     thread 1 ---+--> the last one asks the processes ---+--> thread 1
//     thread 2 --'     (one exchange for all of them)   '--> thread 2
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>

#include "runtime/comm/bootstrap/bootstrap.hpp"

namespace ringsmith::comm {

// Where the threads of one process meet. The bootstrap between the processes is used by one thread
// at a time, not always the same.
class ProcessMeeting {
 public:
  ProcessMeeting(std::shared_ptr<Bootstrap> processes, int ranks_per_process);
  [[nodiscard]] Bootstrap& processes() const { return *processes_; }
  [[nodiscard]] int ranks_per_process() const { return static_cast<int>(mine_.size()); }
  // UsageError if another process has another number of ranks. Throws the same on all threads.
  [[nodiscard]] std::vector<std::string> all_gather(int thread, const std::string& record);

 private:
  [[nodiscard]] std::vector<std::string> exchange() const;

  std::shared_ptr<Bootstrap> processes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> mine_, result_;
  std::exception_ptr error_;
  std::size_t arrived_ = 0;
  int generation_ = 0;
};

class RankOfProcess : public Bootstrap {
 public:
  RankOfProcess(std::shared_ptr<ProcessMeeting> meeting, int thread)
      : meeting_(std::move(meeting)), thread_(thread) {}
  [[nodiscard]] int rank() const override {
    return meeting_->processes().rank() * meeting_->ranks_per_process() + thread_;
  }
  [[nodiscard]] int size() const override {
    return meeting_->processes().size() * meeting_->ranks_per_process();
  }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override {
    return meeting_->all_gather(thread_, record);
  }
  void abandon() override { meeting_->processes().abandon(); }
  [[nodiscard]] bool ends_survivors() const override {
    return meeting_->processes().ends_survivors();
  }

 private:
  std::shared_ptr<ProcessMeeting> meeting_;
  int thread_;
};

}  // namespace ringsmith::comm
