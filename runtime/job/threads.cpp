#include "runtime/job/threads.hpp"

#include <thread>

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
  const auto check_that_all_come = [this, thread] {
    if (left_ < 0) return;
    const int first = processes_->rank() * ranks_per_process();
    throw PeerLost("a thread of this process ended before it joined the group",
                   {.rank = first + thread, .peer = first + left_, .op = {}});
  };
  std::unique_lock lock(mutex_);
  check_that_all_come();
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
    changed_.wait(lock, [&] { return generation_ != generation || left_ >= 0; });
    if (generation_ == generation) check_that_all_come();
  }
  // The next exchange needs this thread, so it cannot overwrite the result yet.
  if (error_) std::rethrow_exception(error_);
  return result_;
}

void ThreadRendezvous::leave(int thread) {
  const std::scoped_lock lock(mutex_);
  if (left_ < 0) left_ = thread;
  changed_.notify_all();
}

std::vector<std::exception_ptr> run_as_threads(
    const std::shared_ptr<ThreadRendezvous>& rendezvous,
    const std::function<void(int thread, std::shared_ptr<Bootstrap>)>& body) {
  const int count = rendezvous->ranks_per_process();
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(count));
  std::vector<std::jthread> threads;
  for (int t = 0; t < count; ++t) {
    std::exception_ptr& error = errors[static_cast<std::size_t>(t)];
    try {
      threads.emplace_back([&body, &rendezvous, &error, t] {
        try {
          body(t, std::make_shared<ThreadBootstrap>(rendezvous, t));
        } catch (...) {
          error = std::current_exception();
        }
        rendezvous->leave(t);
      });
    } catch (...) {  // the thread could not be started
      error = std::current_exception();
      rendezvous->leave(t);
    }
  }
  threads.clear();  // joins them
  return errors;
}

}  // namespace ringsmith::comm
