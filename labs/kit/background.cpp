#include "labs/kit/background.hpp"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

namespace kit {

struct Background::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::packaged_task<void()>> waiting;
  bool over = false;
  std::thread thread;
};

Background::Background() : state_(std::make_shared<State>()) {
  // The thread shares the state, because it may outlive its owner.
  state_->thread = std::thread([state = state_] {
    std::unique_lock lock(state->mutex);
    for (;;) {
      state->changed.wait(lock, [&] { return state->over || !state->waiting.empty(); });
      if (state->waiting.empty()) return;
      std::packaged_task<void()> next = std::move(state->waiting.front());
      state->waiting.pop_front();
      lock.unlock();
      next();
      lock.lock();
    }
  });
}

Background::~Background() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->over = true;
  }
  state_->changed.notify_all();
  if (std::uncaught_exceptions() > 0)
    state_->thread.detach();
  else
    state_->thread.join();
}

Background::Work Background::run(std::function<void()> what) {
  std::packaged_task<void()> task(std::move(what));
  Work work(task.get_future().share());
  {
    const std::lock_guard lock(state_->mutex);
    state_->waiting.push_back(std::move(task));
  }
  state_->changed.notify_all();
  return work;
}

}  // namespace kit
