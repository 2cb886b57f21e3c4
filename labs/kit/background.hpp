// A thread that runs the functions passed to it, one after the other, concurrently with its owner:
//
//     owner     compute | run(a) | compute | run(b) | compute | wait for a | ...
//     thread                [---- a ----][---- b ----]
//
// Lab 06's all_reduce blocks until the sum is complete, so a trainer runs it on this thread and
// computes in the meantime. Operations match if all ranks pass them in the same order.
#pragma once

#include <functional>
#include <future>
#include <memory>

namespace kit {

class Background {
 public:
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
