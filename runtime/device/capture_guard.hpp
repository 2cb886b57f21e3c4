// Lets a thread make CUDA calls while another thread captures a stream for a CUDA graph.
//
// During a capture in the global mode, a call that waits, allocates or queries an event is refused
// in every thread and ends the capture, even if the call has nothing to do with the captured work.
// The threads of a group query events all the time. In the thread-local mode, a thread's calls are
// refused only during its own captures.
#pragma once

#include <cuda_runtime.h>

#include "runtime/device/device.hpp"

namespace ringsmith {

class CaptureGuard {
 public:
  CaptureGuard() { exchange(); }
  ~CaptureGuard() { exchange(); }
  CaptureGuard(const CaptureGuard&) = delete;
  CaptureGuard& operator=(const CaptureGuard&) = delete;

 private:
  void exchange() {
    if (device_count() > 0) (void)cudaThreadExchangeStreamCaptureMode(&other_);
  }
  cudaStreamCaptureMode other_ =
      cudaStreamCaptureModeThreadLocal;  // later the thread's earlier one
};

}  // namespace ringsmith
