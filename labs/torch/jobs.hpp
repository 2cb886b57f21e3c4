// The queue of PyTorch's pending calls: one job per call, run in the order of the calls.
//
//     all_reduce(bucket 0)  all_reduce(bucket 1)      backward continues to compute
//            |                     |
//            '--> [ job | job | ... ] --> the group's thread runs the jobs in order, and completes
//                     ^                    the future of each, for which DDP waits
//     work.wait() ----'  runs pending jobs itself if no thread does: switching threads costs more
//                        than a small collective
//
// A program that waits for each of its calls can run all jobs itself. Waking the group's thread for
// each of them would take several times longer than a small collective. Therefore, once the thread
// has been woken twice within 1.6 ms by such calls, or has found the job taken, the thread looks
// for jobs itself, at intervals that grow from 0.1 to 1.6 ms, until a job is left to it, a call
// follows one that was not waited for, or no call has come for 1.6 ms.
//
// The group's thread yields its core to the training while it waits for peers, unless a caller
// waits for the job.
//
// A callback of a future (`fut.then(...)`) may itself call a collective and wait for it, as
// PyTorch's PowerSGD hook does. Therefore a thread gives up its turn before it completes a future,
// and another thread takes the next job while the callbacks run.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
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

class Job final : public c10d::Work {
 public:
  // title: for errors and PyTorch's profiler. results: the future's value.
  Job(int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> results,
      std::function<void()> body);

  // Throws the job's error, and TimeoutError after `timeout`; kNoTimeout leaves the deadline to the
  // group.
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::vector<at::Tensor> result() override { return results_; }
  // For a job without a body: completes it with this error, or successfully if the error is null.
  void end(std::exception_ptr error);
  // For a recv() from any source: the rank whose message it has received. Set it before end().
  void set_source(int rank) { source_ = rank; }
  [[nodiscard]] int sourceRank() const override { return source_; }

 private:
  friend class Jobs;
  void run();  // runs the body, once
  void tell();
  void complete(c10::ivalue::Future& future) const;

  const char* title_;
  std::vector<at::Tensor> results_;
  std::function<void()> body_;
  std::exception_ptr error_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // null until a caller wants it
  bool told_ = false;                               // a new future is completed already
  std::weak_ptr<Jobs> queue_;
  int source_ = -1;
};

class Jobs : public std::enable_shared_from_this<Jobs> {
 public:
  // Calls hold_core(true) when a caller waits for the running job, and hold_core(false) when none
  // does.
  explicit Jobs(std::function<void(bool)> hold_core) : hold_core_(std::move(hold_core)) {}
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;
  // stop() must have been called.
  ~Jobs() = default;

  void push(const c10::intrusive_ptr<Job>& job);
  // Runs the pending jobs and this one on the calling thread, and wakes no other thread.
  void run(const c10::intrusive_ptr<Job>& job);
  // Runs pending jobs until `job` is done.
  void help(Job& job);
  // Runs the queued jobs and stops the threads. After that, no job may be pushed.
  void stop();

 private:
  void append(const c10::intrusive_ptr<Job>& job);
  void run_front(std::unique_lock<std::mutex>& lock, bool waited_for);
  void call_a_thread();
  [[nodiscard]] bool is_due() const;
  void wait_until_due(std::unique_lock<std::mutex>& lock);
  void doze(std::unique_lock<std::mutex>& lock);
  void work();

  std::function<void(bool)> hold_core_;
  std::mutex mutex_;
  std::condition_variable due_;   // wakes a thread of the group
  std::condition_variable done_;  // a job is done, the turn is free, or a thread has ended
  std::deque<c10::intrusive_ptr<Job>> jobs_;
  bool running_ = false;  // a thread has the turn
  bool stopping_ = false;
  bool waited_ = false;      // a caller has waited since the last push
  bool after_wait_ = false;  // and so it was at the last push
  bool dozes_ = false;       // an idle thread looks for jobs itself
  std::chrono::steady_clock::time_point woken_;
  std::uint64_t pushed_ = 0;
  int threads_ = 0, idle_ = 0;
};

}  // namespace ringsmith::pytorch
