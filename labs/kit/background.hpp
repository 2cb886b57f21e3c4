// A thread that runs the functions it is given, one after the other, concurrently with its owner:
//
//     owner     compute | run(a) | compute | run(b) | compute | wait for a | ...
//     thread                [---- a ----][---- b ----]
//
// Lab 06's all_reduce blocks until the sum is complete, so a trainer runs it on this thread and
// computes meanwhile. If all ranks give their threads the same operations in the same order, the
// operations of the ranks match.
#pragma once

#include <functional>
#include <future>
#include <memory>

namespace kit {

class Background {
 public:
  // A function that was given to the thread. Copyable.
  class Work {
   public:
    // Blocks until the function has returned; rethrows its exception.
    void wait() { done_.get(); }

   private:
    friend class Background;
    explicit Work(std::shared_future<void> done) : done_(std::move(done)) {}
    std::shared_future<void> done_;
  };

  Background();
  // Waits until the thread has run all its functions. During stack unwinding it does not wait,
  // because a running function may never return.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  [[nodiscard]] Work run(std::function<void()> what);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kit
