// What PyTorch has asked for and does not have yet: one job a call, run in the order of the calls.
//
//     all_reduce(bucket 0)  all_reduce(bucket 1)      backward computes on
//            |                     |
//            '--> [ job | job | ... ] --> the group's thread: job after job, and after each its
//                     ^                    future is told, on which DDP waits
//     work.wait() ----'  runs what is due itself, if nobody is at it: changing threads costs more
//                        than a small collective
//
// The group's thread shares the cores with the training and gives way while it waits for peers; one
// that a caller waits for may hold its core.
//
// What hangs on a future (`fut.then(...)`) may itself call a collective and wait for it, as
// PyTorch's PowerSGD hook does. So the turn is given back before a future is told, and a thread
// that is still telling is replaced when the next job is due.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace ringsmith::pytorch {

class Jobs;

// One call, as PyTorch sees it.
class Job final : public c10d::Work {
 public:
  // title: of the call, for errors and PyTorch's profiler. results: what the future gives.
  Job(int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> results,
      std::function<void()> body);

  // kNoTimeout: until the group's own deadline. Throws what went wrong.
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::vector<at::Tensor> result() override { return results_; }
  // For a job without a body, which others do: its end, to all who wait.
  void end(std::exception_ptr error);

 private:
  friend class Jobs;
  void run();   // the body, once
  void tell();  // its end, to all who wait

  const char* title_;
  std::vector<at::Tensor> results_;
  std::function<void()> body_;
  std::exception_ptr error_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::weak_ptr<Jobs> queue_;
};

class Jobs : public std::enable_shared_from_this<Jobs> {
 public:
  // hold_core(true): somebody waits for what is running; false: nobody does.
  explicit Jobs(std::function<void(bool)> hold_core) : hold_core_(std::move(hold_core)) {}
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;
  // stop() has been called.
  ~Jobs() = default;

  void push(const c10::intrusive_ptr<Job>& job);
  // Returns when the job is done; runs what is due meanwhile.
  void help(Job& job);
  // Runs what is still queued, then ends the threads. Afterwards nothing may be pushed.
  void stop();

 private:
  void run_front(std::unique_lock<std::mutex>& lock, bool waited_for);
  void call_a_thread();
  void work();

  std::function<void(bool)> hold_core_;
  std::mutex mutex_;
  std::condition_variable due_;   // for a thread of the group's
  std::condition_variable done_;  // a job is done, the turn is free, or a thread has ended
  std::deque<c10::intrusive_ptr<Job>> jobs_;
  bool running_ = false;  // a thread has the turn
  bool stopping_ = false;
  int threads_ = 0, idle_ = 0;
};

}  // namespace ringsmith::pytorch
