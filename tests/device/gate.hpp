// A gate in a stream: operations queued after it do not start before open(), so that tests do not
// rely on timing. While a gate is closed, no other stream's host function starts, because the
// driver calls them from one thread; two gates must open in the order in which their streams reach
// them.
#pragma once

#include <condition_variable>
#include <cuda_runtime.h>
#include <mutex>

#include "runtime/device/cuda_check.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::test {

class Gate {
 public:
  explicit Gate(const Stream& stream) : stream_(stream) {
    cuda_check(cudaLaunchHostFunc(stream.get(), wait, this));
  }
  ~Gate() {
    open();
    stream_.synchronize();  // the stream still accesses this object
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() {
    {
      const std::scoped_lock lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }

 private:
  static void wait(void* self) {
    auto& gate = *static_cast<Gate*>(self);
    std::unique_lock lock(gate.mutex_);
    gate.changed_.wait(lock, [&] { return gate.open_; });
  }

  Stream stream_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

}  // namespace ringsmith::test
