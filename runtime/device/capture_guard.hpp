// Lets a thread make CUDA calls while a stream is captured for a CUDA graph.
//
// During a capture in the global mode, a call that waits, allocates or queries an event is refused
// in every thread and ends the capture, even if the call has nothing to do with the captured work.
// The threads of a group query events all the time. In the thread-local mode, a thread's calls are
// refused only during its own captures; in the relaxed mode, only if they concern captured work.
#pragma once

#include <cuda_runtime.h>

#include "runtime/device/device.hpp"

namespace ringsmith {

// A guard inside another one never restricts the thread further.
class CaptureGuard {
 public:
  explicit CaptureGuard(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal)
      : other_(mode) {
    exchange();
    if (other_ <= mode) return;
    exchange();
    active_ = false;
  }
  ~CaptureGuard() {
    if (active_) exchange();
  }
  CaptureGuard(const CaptureGuard&) = delete;
  CaptureGuard& operator=(const CaptureGuard&) = delete;

 private:
  void exchange() {
    if (device_count() > 0) (void)cudaThreadExchangeStreamCaptureMode(&other_);
  }
  cudaStreamCaptureMode other_;  // later the thread's earlier mode
  bool active_ = true;
};

}  // namespace ringsmith
