// The rules for calls during a capture (api/graph.hpp). Some calls are unsafe while a stream is
// captured, because they wait for work, or ask about work, that has only been recorded.
#pragma once

#include "kernels/vgpu/api/graph.hpp"

namespace vgpu {

class Device;
class Queue;

// Notes that the calling thread captures the queue.
void capture_begins(const Queue& queue, cudaStreamCaptureMode mode);
// Returns an error if the capture was invalidated, or if it is another thread's. In the latter case
// the capture continues.
cudaError_t capture_ends(const Queue& queue);
[[nodiscard]] bool capture_is_invalid(Queue& queue);

// For an unsafe call that does not concern a captured stream: returns success, or invalidates the
// captures that forbid the call to this thread, and returns an error.
cudaError_t refuse_unsafe(const char* call);
// For an unsafe call that concerns the captured queue: always invalidates the capture.
cudaError_t refuse_captured(Queue& queue, const char* call);
// For a call on the device's legacy default stream, which would wait for the captured work of a
// blocking stream: invalidates the captures of the device's blocking streams.
cudaError_t refuse_implicit(const Device& device, const char* call);

}  // namespace vgpu
