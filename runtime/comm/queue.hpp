// Runs a group's operations in the order of their calls, one at a time.
//
// The communication thread runs queued asynchronous calls. A blocking call or a wait() runs the due
// operations on the calling thread if no other thread is running one. This avoids a thread switch,
// which costs more than a small collective.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

class Queue {
 public:
  // Runs a transfer. foreground: a caller waits for it, so the thread may hold its core.
  using Runner = std::function<void(Transfer&, bool foreground)>;
  // Tells the running transfer that a caller has started to wait for it or for a later one.
  using Hurry = std::function<void()>;

  Queue(Runner runner, Hurry hurry) : runner_(std::move(runner)), hurry_(std::move(hurry)) {}
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue() { stop(); }
  // Runs all queued operations. After this call, none may be added.
  void stop();

  WorkPtr push(const Transfer& transfer);
  void run(Transfer& transfer);  // blocks until the transfer is done; throws its error
  // Runs `action` while no transfer runs. Must not be called from within a transfer.
  void take_turn(const std::function<void()>& action);

 private:
  class Item;
  void wait_for(Item& item);
  void run_front(std::unique_lock<std::mutex>& lock, bool foreground);
  void work();  // the communication thread

  Runner runner_;
  Hurry hurry_;
  std::mutex mutex_;
  std::condition_variable due_;   // for the communication thread
  std::condition_variable done_;  // an item is done, or the turn is free
  std::deque<std::shared_ptr<Item>> items_;
  bool running_ = false;  // a thread has the turn
  bool stopping_ = false;
  std::thread thread_;  // started by the first push()
};

}  // namespace ringsmith::comm
