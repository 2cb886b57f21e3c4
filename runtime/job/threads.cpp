#include "runtime/job/threads.hpp"

#include "runtime/base/error.hpp"
#include "runtime/comm/types/settings.hpp"

namespace ringsmith::comm {

std::vector<std::string> ThreadRendezvous::exchange() const {
  std::vector<std::string> all;
  const auto records = processes_->all_gather(join_records(mine_));
  for (std::size_t p = 0; p < records.size(); ++p) {
    const std::vector<std::string> theirs = split_records(records[p]);
    if (theirs.size() != mine_.size())
      throw UsageError("process " + std::to_string(p) + " has " + std::to_string(theirs.size()) +
                       " ranks and this one " + std::to_string(mine_.size()) +
                       ": give all processes the same number");
    all.insert(all.end(), theirs.begin(), theirs.end());
  }
  return all;
}

std::vector<std::string> ThreadRendezvous::all_gather(int thread, const std::string& record) {
  std::unique_lock lock(mutex_);
  mine_[static_cast<std::size_t>(thread)] = record;
  if (++arrived_ == mine_.size()) {
    // Holds the lock during the exchange: all other threads wait for the next generation anyway.
    try {
      error_ = nullptr;
      result_ = exchange();
    } catch (...) {
      error_ = std::current_exception();
    }
    arrived_ = 0;
    ++generation_;
    changed_.notify_all();
  } else {
    const int generation = generation_;
    changed_.wait(lock, [&] { return generation_ != generation; });
  }
  // The next exchange needs this thread, so it cannot overwrite the result yet.
  if (error_) std::rethrow_exception(error_);
  return result_;
}

}  // namespace ringsmith::comm
