// OS threads that help to run the blocks of grids; started as needed and kept.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace vgpu {

class Helpers {
 public:
  // For a stream: those of the whole process. (Under ThreadSanitizer every stream has its own while
  // it lives, because two blocks on one OS thread count as ordered, and two streams must not be.)
  static Helpers& lend();
  static void give_back(Helpers& helpers);

  // Runs the job on a helper, a new one if all are busy.
  void start(std::function<void()> job);
  // Runs it if a helper is idle or fewer of them exist than cores; else says no.
  bool offer(std::function<void()> job);

 private:
  void push(std::function<void()> job);
  void work();
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  int threads_ = 0;
  std::size_t waiting_ = 0;
};

}  // namespace vgpu
