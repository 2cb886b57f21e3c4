// Events. cudaEventRecord puts a new Moment into the stream; the event then stands for that moment,
// and whoever waits takes the moment that the event stands for when the wait is called.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace vgpu {

class Queue;

class Moment {
 public:
  // The stream has come to it.
  void reach();
  void wait();  // orders what came before reach() before what comes after wait()
  [[nodiscard]] bool reached();
  [[nodiscard]] std::chrono::steady_clock::time_point time();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  std::chrono::steady_clock::time_point time_;
  char order_ = 0;  // for ThreadSanitizer
};

}  // namespace vgpu

struct CUevent_st {
  unsigned flags = 0;
  int device = 0;
  std::mutex mutex;
  std::shared_ptr<vgpu::Moment> moment;  // null: never recorded, and so complete
};
