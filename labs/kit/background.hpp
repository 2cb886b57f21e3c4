// A thread that does what it is given, one thing after the other, beside whatever its owner does:
//
//     owner     compute | run(a) | compute | run(b) | compute | wait for a | ...
//     thread                [---- a ----][---- b ----]
//
// Lab 06's all_reduce returns when the sum is there; a trainer wants to compute meanwhile. Ranks
// that give their threads the same things in the same order meet in them in that order.
#pragma once

#include <functional>
#include <future>
#include <memory>

namespace kit {

class Background {
 public:
  // Something that was given to the thread. May be copied.
  class Work {
   public:
    // Returns when it is done; throws what it has thrown.
    void wait() { done_.get(); }

   private:
    friend class Background;
    explicit Work(std::shared_future<void> done) : done_(std::move(done)) {}
    std::shared_future<void> done_;
  };

  Background();
  // Ends when everything that was given to the thread is done. (When its owner leaves by an
  // exception, nobody waits: what is under way may never be done.)
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  [[nodiscard]] Work run(std::function<void()> what);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kit
