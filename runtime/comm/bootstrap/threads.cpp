#include "runtime/comm/bootstrap/threads.hpp"

namespace ringsmith::comm {

ThreadRendezvous::ThreadRendezvous(int world) : records_(static_cast<std::size_t>(world)) {}

std::vector<std::string> ThreadRendezvous::all_gather(int rank, const std::string& record) {
  std::unique_lock lock(mutex_);
  records_[static_cast<std::size_t>(rank)] = record;
  if (++arrived_ == world()) {
    // The result is a copy: the next exchange may start before the last thread has read this one.
    result_ = records_;
    arrived_ = 0;
    ++generation_;
    changed_.notify_all();
    return result_;
  }
  const int mine = generation_;
  changed_.wait(lock, [&] { return generation_ != mine; });
  return result_;
}

}  // namespace ringsmith::comm
