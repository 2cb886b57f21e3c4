#include "labs/torch/jobs.hpp"

#include <ATen/core/jit_type.h>
#include <ATen/record_function.h>
#include <algorithm>
#include <utility>

#include "labs/torch/errors.hpp"

namespace ringsmith::pytorch {

namespace {

constexpr int kMostIdle = 2;  // threads; one may complete a future while the other runs a job
constexpr std::chrono::microseconds kShortDoze{100}, kLongDoze{1600};

thread_local const Jobs* works_for = nullptr;  // the queue whose thread this is, or null

}  // namespace

Job::Job(int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> results,
         std::function<void()> body)
    : Work(rank, type, at::hasCallbacks() ? title : nullptr),  // a record costs time
      title_(title),
      results_(std::move(results)),
      body_(std::move(body)) {}

void Job::run() {
  try {
    const at::NoGradGuard no_grad;  // allows writing to leaves of a graph
    body_();
  } catch (...) {
    error_ = current_as_python_error();
  }
  body_ = nullptr;  // releases the tensors that it holds
}

// Most callers only wait() and want no future.
c10::intrusive_ptr<c10::ivalue::Future> Job::getFuture() {
  const std::lock_guard lock(mutex_);
  if (!future_) {
    future_ =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    if (told_) complete(*future_);
  }
  return future_;
}

void Job::complete(c10::ivalue::Future& future) const {
  if (error_)
    future.setError(error_);
  else
    future.markCompleted(c10::IValue(results_));
}

// Ends the profiler's record before anything else: DDP waits for the future, and a program that
// continues may stop the profiler, which frees the record. Completes the future before the job,
// because a caller that returns from wait() may read the value, and without the lock, because the
// future's callbacks run.
void Job::tell() {
  std::unique_lock lock(mutex_);
  if (recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
  told_ = true;
  const auto future = future_;
  lock.unlock();
  if (future) complete(*future);
  finish(error_);
}

void Job::end(std::exception_ptr error) {
  error_ = std::move(error);
  tell();
}

bool Job::wait(std::chrono::milliseconds timeout) {
  if (timeout == kNoTimeout) {
    if (const auto queue = queue_.lock()) queue->help(*this);
  }
  std::unique_lock lock(mutex_);
  if (timeout == kNoTimeout) {
    cv_.wait(lock, [this] { return completed_; });
  } else if (!cv_.wait_for(lock, timeout, [this] { return completed_; })) {
    throw PythonError(TimeoutError(std::string("wait() for ") + title_ + " was given " +
                                       std::to_string(timeout.count()) +
                                       " ms; the call still runs, under the group's own deadline",
                                   seen_by(rank_)));
  }
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

// Requires the lock.
void Jobs::append(const c10::intrusive_ptr<Job>& job) {
  job->queue_ = weak_from_this();
  jobs_.push_back(job);
  ++pushed_;
  after_wait_ = waited_;
  waited_ = false;
}

void Jobs::push(const c10::intrusive_ptr<Job>& job) {
  const std::lock_guard lock(mutex_);
  append(job);
  if (!dozes_ || !after_wait_ || jobs_.size() > 1) call_a_thread();
}

void Jobs::run(const c10::intrusive_ptr<Job>& job) {
  {
    const std::lock_guard lock(mutex_);
    append(job);
  }
  help(*job);
}

// Wakes or starts a thread for the next job, unless a job is running. Requires the lock.
void Jobs::call_a_thread() {
  if (jobs_.empty() || running_) return;
  if (idle_ > 0) return due_.notify_one();
  ++threads_;
  ++idle_;
  std::thread([self = shared_from_this()] { self->work(); }).detach();
}

void Jobs::help(Job& job) {
  std::unique_lock lock(mutex_);
  waited_ = true;
  while (!job.isCompleted()) {
    if (!running_ && !jobs_.empty()) {
      run_front(lock, true);
      continue;
    }
    if (running_) hold_core_(true);
    done_.wait(lock, [&] { return job.isCompleted() || (!running_ && !jobs_.empty()); });
  }
}

void Jobs::run_front(std::unique_lock<std::mutex>& lock, bool waited_for) {
  const c10::intrusive_ptr<Job> next = jobs_.front();
  jobs_.pop_front();
  running_ = true;
  lock.unlock();
  hold_core_(waited_for);
  next->run();
  lock.lock();
  running_ = false;
  call_a_thread();
  lock.unlock();
  next->tell();
  lock.lock();
  done_.notify_all();
}

bool Jobs::is_due() const { return (!jobs_.empty() && !running_) || (stopping_ && jobs_.empty()); }

void Jobs::wait_until_due(std::unique_lock<std::mutex>& lock) {
  while (!is_due()) {
    due_.wait(lock);
    const auto now = std::chrono::steady_clock::now();
    const bool often = now - woken_ < kLongDoze;
    woken_ = now;
    if (!dozes_ && after_wait_ && (often || !is_due())) doze(lock);
  }
}

void Jobs::doze(std::unique_lock<std::mutex>& lock) {
  dozes_ = true;
  for (auto length = kShortDoze;; length = std::min(2 * length, kLongDoze)) {
    const std::uint64_t seen = pushed_;
    due_.wait_for(lock, length);
    if (stopping_ || !after_wait_ || jobs_.size() > 1) break;
    if (pushed_ == seen && (!jobs_.empty() || length == kLongDoze)) break;
  }
  dozes_ = false;
}

void Jobs::work() {
  works_for = this;
  std::unique_lock lock(mutex_);
  while (true) {
    wait_until_due(lock);
    --idle_;
    if (jobs_.empty()) break;
    run_front(lock, false);
    if (idle_ >= kMostIdle) break;  // enough other threads are idle by now
    ++idle_;
  }
  --threads_;
  done_.notify_all();
}

void Jobs::stop() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  due_.notify_all();
  // A future's callback, on a thread of this queue, may have dropped the last reference to the
  // group. In this case, stop() runs on that thread, which cannot wait for itself.
  const int this_one = works_for == this ? 1 : 0;
  done_.wait(lock, [&] { return threads_ == this_one; });
}

}  // namespace ringsmith::pytorch
