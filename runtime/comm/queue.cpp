#include "runtime/comm/queue.hpp"

#include <atomic>
#include <cstdio>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/base/tracer.hpp"
#include "runtime/comm/failure/rank_report.hpp"

namespace ringsmith::comm {

namespace {

// Prints the first error of a group if the failed call's handle is destroyed without a wait(),
// because there may be no later call to throw it. Prints nothing during stack unwinding, because
// the exception may have the same cause.
void say_unheard(const std::exception_ptr& error) noexcept {
  if (std::uncaught_exceptions() > 0) return;
  try {
    std::rethrow_exception(error);
  } catch (const Aborted&) {  // NOLINT(bugprone-empty-catch): the program called abort()
  } catch (const std::exception& e) {
    if (std::string_view(e.what()).find(kBrokenBefore) == std::string_view::npos)
      std::fprintf(stderr, "ringsmith: error in a call that was never waited for: %s\n", e.what());
  } catch (...) {  // NOLINT(bugprone-empty-catch): no text to print
  }
}

}  // namespace

class Queue::Item : public Work {
 public:
  Item(Queue& queue, const Transfer& transfer) : queue_(queue), transfer_(transfer) {}
  Item(const Item&) = delete;
  Item& operator=(const Item&) = delete;
  ~Item() override {
    if (error_ && !heard_) say_unheard(error_);
  }
  [[nodiscard]] bool is_completed() const override { return done_; }
  // A queue runs all its items before it ends, so an item that outlives its queue is done.
  void wait() override {
    if (!done_) queue_.wait_for(*this);
    heard_ = true;
    if (error_) std::rethrow_exception(error_);
  }

  // Called without the lock, by the thread whose turn it is.
  void execute(bool foreground) {
    try {
      queue_.runner_(transfer_, foreground);
    } catch (...) {
      error_ = std::current_exception();
    }
  }

 private:
  friend class Queue;
  Queue& queue_;
  Transfer transfer_;
  std::exception_ptr error_;
  std::atomic<bool> heard_{false};  // wait() has been called
  std::atomic<bool> done_{false};   // stored under the queue's mutex, after error_
};

void Queue::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  due_.notify_all();
  if (thread_.joinable()) thread_.join();
}

WorkPtr Queue::push(const Transfer& transfer) {
  auto item = std::make_shared<Item>(*this, transfer);
  {
    const std::lock_guard lock(mutex_);
    items_.push_back(item);
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  }
  due_.notify_one();
  return item;
}

void Queue::run(Transfer& transfer) {
  std::unique_lock lock(mutex_);
  if (running_ || !items_.empty()) {
    lock.unlock();
    push(transfer)->wait();
    return;
  }
  running_ = true;
  lock.unlock();
  const auto give_back = [&] {
    lock.lock();
    running_ = false;
    const bool more = !items_.empty();
    lock.unlock();
    if (more) {
      due_.notify_one();
      done_.notify_all();
    }
  };
  try {
    runner_(transfer, true);
  } catch (...) {
    give_back();
    throw;
  }
  give_back();
}

void Queue::take_turn(const std::function<void()>& action) {
  constexpr std::chrono::milliseconds kLook{1};  // run() may return its turn without a notification
  std::unique_lock lock(mutex_);
  while (running_) done_.wait_for(lock, kLook);
  running_ = true;
  lock.unlock();
  action();
  lock.lock();
  running_ = false;
  done_.notify_all();
  if (!items_.empty()) due_.notify_one();
}

void Queue::run_front(std::unique_lock<std::mutex>& lock, bool foreground) {
  const std::shared_ptr<Item> next = items_.front();
  items_.pop_front();
  running_ = true;
  lock.unlock();
  next->execute(foreground);
  lock.lock();
  running_ = false;
  next->done_ = true;
  done_.notify_all();
  if (!items_.empty()) due_.notify_one();
}

void Queue::wait_for(Item& item) {
  std::unique_lock lock(mutex_);
  while (!item.done_) {
    if (running_) {
      hurry_();
      done_.wait(lock, [&] { return item.done_ || !running_; });
      continue;
    }
    run_front(lock, true);
  }
}

void Queue::work() {
  trace::name_thread("communication");
  std::unique_lock lock(mutex_);
  while (true) {
    due_.wait(lock,
              [&] { return (!items_.empty() && !running_) || (stopping_ && items_.empty()); });
    if (items_.empty()) return;
    run_front(lock, false);
  }
}

}  // namespace ringsmith::comm
