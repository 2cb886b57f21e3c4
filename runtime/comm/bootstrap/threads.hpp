// Ranks as threads of one process: the same code, with ThreadSanitizer or a debugger over all
// ranks.
#pragma once

#include <condition_variable>
#include <mutex>

#include "runtime/comm/bootstrap/bootstrap.hpp"

namespace ringsmith::comm {

// Where the threads meet; one for the whole job.
class ThreadRendezvous {
 public:
  explicit ThreadRendezvous(int world);
  std::vector<std::string> all_gather(int rank, const std::string& record);
  [[nodiscard]] int world() const { return static_cast<int>(records_.size()); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> records_, result_;
  int arrived_ = 0;
  int generation_ = 0;
};

class ThreadBootstrap : public Bootstrap {
 public:
  ThreadBootstrap(std::shared_ptr<ThreadRendezvous> rendezvous, int rank)
      : rendezvous_(std::move(rendezvous)), rank_(rank) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return rendezvous_->world(); }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override {
    return rendezvous_->all_gather(rank_, record);
  }

 private:
  std::shared_ptr<ThreadRendezvous> rendezvous_;
  int rank_;
};

}  // namespace ringsmith::comm
