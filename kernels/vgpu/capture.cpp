#include "kernels/vgpu/capture.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/queue.hpp"

namespace vgpu {

namespace {

struct Capture {
  const Queue* queue;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  std::string invalidated_by;  // a call
};

// Never destroyed, because other threads may outlive main().
struct Captures {
  std::mutex mutex;
  std::vector<Capture> active;
  std::atomic<int> count{0};  // of active, to ask without the mutex
};
Captures& captures() {
  static auto* const all = new Captures;
  return *all;
}

thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

auto find_capture(const Queue& queue) {
  auto& active = captures().active;
  return std::find_if(active.begin(), active.end(),
                      [&](const Capture& c) { return c.queue == &queue; });
}

cudaError_t refuse(const char* call, const std::string& streams) {
  return fail(cudaErrorStreamCaptureUnsupported,
              std::string(call) + " is not permitted while " + streams +
                  " is being captured, and invalidates the capture");
}

}  // namespace

void capture_begins(const Queue& queue, cudaStreamCaptureMode mode) {
  Captures& all = captures();
  const std::scoped_lock lock(all.mutex);
  all.active.push_back({&queue, mode, std::this_thread::get_id(), {}});
  ++all.count;
}

cudaError_t capture_ends(const Queue& queue) {
  Captures& all = captures();
  const std::scoped_lock lock(all.mutex);
  const auto found = find_capture(queue);
  if (found == all.active.end()) return cudaSuccess;
  if (found->mode != cudaStreamCaptureModeRelaxed && found->thread != std::this_thread::get_id())
    return fail(cudaErrorStreamCaptureWrongThread,
                "cudaStreamEndCapture: another thread began the capture of " + queue.name());
  const std::string culprit = std::move(found->invalidated_by);
  all.active.erase(found);
  --all.count;
  if (culprit.empty()) return cudaSuccess;
  return fail(cudaErrorStreamCaptureInvalidated,
              "cudaStreamEndCapture: " + culprit + " invalidated the capture of " + queue.name());
}

bool capture_is_invalid(Queue& queue) {
  const Queue* const origin = queue.capture_origin();
  if (origin == nullptr) return false;
  const std::scoped_lock lock(captures().mutex);
  const auto found = find_capture(*origin);
  return found != captures().active.end() && !found->invalidated_by.empty();
}

cudaError_t refuse_unsafe(const char* call) {
  if (captures().count == 0 || mode_of_thread == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  const Quiet quiet;
  const std::scoped_lock lock(captures().mutex);
  std::string streams;
  for (Capture& c : captures().active) {
    const bool forbids = c.thread == std::this_thread::get_id()
                             ? c.mode != cudaStreamCaptureModeRelaxed
                             : c.mode == cudaStreamCaptureModeGlobal &&
                                   mode_of_thread == cudaStreamCaptureModeGlobal;
    if (!forbids) continue;
    streams += (streams.empty() ? "" : ", ") + c.queue->name();
    c.invalidated_by = call;
  }
  return streams.empty() ? cudaSuccess : refuse(call, streams);
}

cudaError_t refuse_captured(Queue& queue, const char* call) {
  const Quiet quiet;
  const Queue* const origin = queue.capture_origin();
  const std::scoped_lock lock(captures().mutex);
  const auto found = find_capture(origin != nullptr ? *origin : queue);
  if (found != captures().active.end()) found->invalidated_by = call;
  return refuse(call, queue.name());
}

cudaError_t refuse_implicit(const Device& device, const char* call) {
  if (captures().count == 0) return cudaSuccess;
  const Quiet quiet;
  const std::scoped_lock lock(captures().mutex);
  std::string streams;
  for (Capture& c : captures().active) {
    if (&c.queue->device() != &device || c.queue->kind() != Queue::Kind::blocking) continue;
    streams += (streams.empty() ? "" : ", ") + c.queue->name();
    c.invalidated_by = std::string(call) + " on the default stream";
  }
  if (streams.empty()) return cudaSuccess;
  return fail(cudaErrorStreamCaptureImplicit,
              std::string(call) + " on the default stream would wait for the captured work of " +
                  streams + ", and invalidates the capture");
}

}  // namespace vgpu

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  if (*mode < cudaStreamCaptureModeGlobal || *mode > cudaStreamCaptureModeRelaxed)
    return vgpu::fail(cudaErrorInvalidValue, "cudaThreadExchangeStreamCaptureMode: unknown mode");
  std::swap(*mode, vgpu::mode_of_thread);
  return cudaSuccess;
}
