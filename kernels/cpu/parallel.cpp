// A small thread pool: workers sleep on a condition variable between jobs.
#include "kernels/parallel.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace ringsmith::kernels::detail {

namespace {

thread_local bool inside_job = false;

struct Job {
  RangeFn call = nullptr;
  const void* f = nullptr;
  std::int64_t n = 0;
  int pieces = 0;

  void run(int piece) const {
    const std::int64_t begin = n * piece / pieces;
    const std::int64_t end = n * (piece + 1) / pieces;
    if (begin < end) call(f, begin, end);
  }
};

class Pool {
 public:
  ~Pool() {
    {
      const std::scoped_lock lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  // Returns false if another thread is using the pool. In that case, the caller must do all the
  // work.
  bool run(const Job& job) {
    const std::unique_lock turn(turn_, std::try_to_lock);
    if (!turn.owns_lock()) return false;
    {
      const std::scoped_lock lock(mutex_);
      while (static_cast<int>(workers_.size()) < job.pieces - 1) {
        const int piece = static_cast<int>(workers_.size()) + 1;
        workers_.emplace_back([this, piece, seen = generation_] { work(piece, seen); });
      }
      job_ = job;
      unfinished_ = job.pieces - 1;
      failure_ = nullptr;
      ++generation_;
    }
    wake_.notify_all();
    inside_job = true;
    std::exception_ptr mine;
    try {
      job.run(0);
    } catch (...) {
      mine = std::current_exception();
    }
    inside_job = false;
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return unfinished_ == 0; });
    if (mine) std::rethrow_exception(mine);
    if (failure_) std::rethrow_exception(failure_);
    return true;
  }

 private:
  void work(int piece, std::uint64_t seen) {
    inside_job = true;  // a nested parallel_for runs inline
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return stop_ || generation_ != seen; });
      if (stop_) return;
      seen = generation_;
      if (piece >= job_.pieces) continue;
      const Job job = job_;
      lock.unlock();
      std::exception_ptr failure;
      try {
        job.run(piece);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (failure && !failure_) failure_ = failure;
      if (--unfinished_ == 0) done_.notify_one();
    }
  }

  std::mutex turn_;   // one job at a time
  std::mutex mutex_;  // protects everything below
  std::condition_variable wake_, done_;
  std::vector<std::thread> workers_;
  Job job_;
  int unfinished_ = 0;
  std::uint64_t generation_ = 0;
  std::exception_ptr failure_;
  bool stop_ = false;
};

}  // namespace

void parallel_run(std::int64_t n, std::int64_t grain, RangeFn call, const void* f) {
  static Pool pool;
  const std::int64_t most =
      (n + std::max<std::int64_t>(grain, 1) - 1) / std::max<std::int64_t>(grain, 1);
  const int pieces = static_cast<int>(std::min<std::int64_t>(threads(), most));
  if (pieces <= 1 || inside_job || !pool.run({call, f, n, pieces})) call(f, 0, n);
}

}  // namespace ringsmith::kernels::detail
