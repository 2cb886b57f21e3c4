#include "kernels/vgpu/event.hpp"

#include <cerrno>
#include <climits>
#include <cstring>
#include <linux/futex.h>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kernels/vgpu/api/foreign.hpp"
#include "kernels/vgpu/api/runtime.hpp"
#include "kernels/vgpu/capture.hpp"
#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/queue.hpp"
#include "kernels/vgpu/settings.hpp"

namespace vgpu {

namespace {

constexpr timespec kLook{0, 100'000'000};  // interval between checks that the recorder is alive
// If the recorder dies, the event is never reached, unless another process records it again. A wait
// ends the process when this many checks have found the recorder dead.
constexpr int kLooksInVain = 20;

long futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value,
           const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation, value, timeout,
                   nullptr, 0);
}

// True if `reached` is at or after `number`. Both counters may wrap around.
bool at_least(std::uint32_t reached, std::uint32_t number) {
  return static_cast<std::int32_t>(reached - number) >= 0;
}

}  // namespace

SharedEvents& SharedEvents::get() {
  static auto* events = new SharedEvents;
  return *events;
}

SharedEvents::SharedEvents() {
  file_ = ::memfd_create("vgpu-events", MFD_CLOEXEC);
  void* space = MAP_FAILED;
  if (file_ >= 0 && ::ftruncate(file_, kBytes) == 0)
    space = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (space == MAP_FAILED)
    fatal(std::string("cannot create an anonymous file for interprocess events: ") +
          std::strerror(errno) + "; see ulimit -n and ulimit -f");
  all_ = static_cast<EventCounters*>(space);
}

std::shared_ptr<EventCounters> SharedEvents::make() {
  const std::scoped_lock lock(mutex_);
  EventCounters* c = nullptr;
  if (!free_.empty()) {
    c = free_.back();
    free_.pop_back();
  } else if (made_ < kBytes / sizeof(EventCounters)) {
    c = all_ + made_++;
  } else {
    return nullptr;
  }
  c->recorded = 0;
  c->reached = 0;
  c->exported = false;
  return {c, [this](EventCounters* counters) { take_back(counters); }};
}

void SharedEvents::take_back(EventCounters* counters) {
  if (counters->exported) return;
  const std::scoped_lock lock(mutex_);
  free_.push_back(counters);
}

std::shared_ptr<EventCounters> open_counters(int file, std::size_t index) {
  const std::size_t bytes = guard_page(), per_page = bytes / sizeof(EventCounters);
  void* const page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                            static_cast<off_t>(index / per_page * bytes));
  if (page == MAP_FAILED) return nullptr;
  return {static_cast<EventCounters*>(page) + index % per_page,
          [page, bytes](EventCounters*) { ::munmap(page, bytes); }};
}

void SharedMoment::reach() {
  declare_before(counters_.get());
  std::uint32_t before = counters_->reached.load(std::memory_order_relaxed);
  while (!at_least(before, number_) &&
         !counters_->reached.compare_exchange_weak(before, number_, std::memory_order_release)) {
  }
  futex(&counters_->reached, FUTEX_WAKE, INT_MAX, nullptr);
}

void SharedMoment::wait() {
  for (int in_vain = 0;;) {
    const std::uint32_t now = counters_->reached.load(std::memory_order_acquire);
    if (at_least(now, number_)) break;
    if (futex(&counters_->reached, FUTEX_WAIT, now, &kLook) == 0 || errno != ETIMEDOUT) continue;
    const std::int32_t recorder = counters_->recorder.load();
    if (::kill(recorder, 0) != 0 && errno == ESRCH &&
        !at_least(counters_->reached.load(std::memory_order_acquire), number_) &&
        ++in_vain == kLooksInVain)
      fatal("a wait for an interprocess event will never end: process " + std::to_string(recorder) +
            ", which recorded it, ended before reaching it");
  }
  declare_after(counters_.get());
}

bool SharedMoment::reached() {
  if (!at_least(counters_->reached.load(std::memory_order_acquire), number_)) return false;
  declare_after(counters_.get());
  return true;
}

void LocalMoment::reach() {
  declare_before(&order_);
  const std::scoped_lock lock(mutex_);
  reached_ = true;
  time_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}

void LocalMoment::wait() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
  }
  declare_after(&order_);
}

bool LocalMoment::reached() {
  {
    const std::scoped_lock lock(mutex_);
    if (!reached_) return false;
  }
  declare_after(&order_);
  return true;
}

std::chrono::steady_clock::time_point LocalMoment::time() {
  const std::scoped_lock lock(mutex_);
  return time_;
}

}  // namespace vgpu

using vgpu::fail;
using vgpu::Moment;
using vgpu::Queue;
using vgpu::queue_of;
using vgpu::Quiet;
using vgpu::SharedEvents;
using vgpu::SharedMoment;

namespace {

// Returns the event's current moment, or null if the event was never recorded.
std::shared_ptr<Moment> moment_of(cudaEvent_t event) {
  if (event->counters != nullptr) {
    const std::uint32_t number = event->counters->recorded.load();
    return number == 0 ? nullptr : std::make_shared<SharedMoment>(event->counters, number);
  }
  const std::scoped_lock lock(event->mutex);
  return event->moment;
}

std::shared_ptr<Moment> new_moment(cudaEvent_t event) {
  if (event->counters != nullptr) {
    event->counters->recorder = ::getpid();
    return std::make_shared<SharedMoment>(event->counters, ++event->counters->recorded);
  }
  const std::scoped_lock lock(event->mutex);
  event->moment = std::make_shared<vgpu::LocalMoment>();
  return event->moment;
}

// Never destroyed, because other threads may outlive main().
vgpu::Living<CUevent_st>& events() {
  static auto* const all = new vgpu::Living<CUevent_st>;
  return *all;
}

cudaError_t check_event(cudaEvent_t event, const char* call) {
  const Quiet quiet;
  vgpu::outside_host_functions(call);
  if (const char* reason = events().refuse(event))
    return fail(cudaErrorInvalidResourceHandle, std::string(call) + ": the event " + reason);
  return cudaSuccess;
}

// A graph's record is reached only when the graph is launched, so that a wait from outside might
// never end.
cudaError_t refuse_captured_event(cudaEvent_t event, const char* call) {
  {
    const std::scoped_lock lock(event->mutex);
    if (event->captured.graph == nullptr) return cudaSuccess;
  }
  return fail(
      cudaErrorCapturedEvent,
      std::string(call) + ": the event was last recorded in a stream that was being captured");
}

// The stream joins the capture to which the point belongs.
cudaError_t follow(Queue& queue, const vgpu::CapturePoint& point) {
  {
    const std::scoped_lock lock(point.graph->mutex);
    if (point.graph->ended)
      return fail(cudaErrorCapturedEvent,
                  "cudaStreamWaitEvent: the event was recorded in a capture that has ended");
  }
  if (queue.kind() == Queue::Kind::legacy)
    return fail(cudaErrorStreamCaptureUnsupported,
                "cudaStreamWaitEvent: the default stream cannot join a capture");
  if (queue.join(point)) return cudaSuccess;
  return fail(cudaErrorStreamCaptureIsolation,
              "cudaStreamWaitEvent: " + queue.name() + " belongs to another capture");
}

cudaError_t not_ready() {
  return fail(cudaErrorNotReady, "the event's stream has not reached it yet");
}

}  // namespace

cudaEvent_t vgpu::living_event(std::unique_ptr<CUevent_st> made) {
  return events().add(std::move(made));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const Quiet quiet;
  if ((flags & ~(cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess)) != 0)
    return fail(cudaErrorInvalidValue, "cudaEventCreateWithFlags: unknown flags");
  if ((flags & cudaEventInterprocess) != 0 && (flags & cudaEventDisableTiming) == 0)
    return fail(cudaErrorInvalidValue,
                "cudaEventCreateWithFlags: cudaEventInterprocess needs cudaEventDisableTiming");
  auto made = std::make_unique<CUevent_st>();
  made->flags = flags;
  made->device = vgpu::Device::current().index();
  if ((flags & cudaEventInterprocess) != 0) {
    made->counters = SharedEvents::get().make();
    if (made->counters == nullptr)
      return fail(cudaErrorMemoryAllocation,
                  "cudaEventCreateWithFlags: too many interprocess events");
  }
  *event = vgpu::living_event(std::move(made));
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Quiet quiet;
  if (const auto e = check_event(event, "cudaEventDestroy")) return e;
  event->moment.reset();  // streams that still need the moment also own it
  event->counters.reset();
  events().bury(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const auto e = check_event(event, "cudaEventRecord")) return e;
  Queue* queue = queue_of(stream, "cudaEventRecord");
  if (queue == nullptr) return cudaPeekAtLastError();
  std::shared_ptr<Moment> moment;
  {
    const Quiet quiet;
    if (queue->device().index() != event->device)
      return fail(cudaErrorInvalidResourceHandle,
                  "cudaEventRecord: the event was made for device " +
                      std::to_string(event->device) + ", the stream is " + queue->name());
    // During a capture, the event only names the nodes that a wait for it must follow.
    vgpu::CapturePoint point = queue->capture_point();
    const bool captured = point.graph != nullptr;
    {
      const std::scoped_lock lock(event->mutex);
      event->captured = std::move(point);
    }
    if (captured) return cudaSuccess;
    moment = new_moment(event);
  }
  queue->add("event record", [moment] { moment->reach(); });
  const Quiet quiet;
  moment.reset();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  if (const auto e = check_event(event, "cudaStreamWaitEvent")) return e;
  Queue* queue = queue_of(stream, "cudaStreamWaitEvent");
  if (queue == nullptr) return cudaPeekAtLastError();
  std::shared_ptr<Moment> moment;
  {
    const Quiet quiet;
    if (flags != 0) return fail(cudaErrorInvalidValue, "cudaStreamWaitEvent: flags must be 0");
    vgpu::CapturePoint point;
    {
      const std::scoped_lock lock(event->mutex);
      point = event->captured;
    }
    if (point.graph != nullptr) return follow(*queue, point);
    moment = moment_of(event);
    if (moment == nullptr) return cudaSuccess;
  }
  queue->add("event wait", [moment] { moment->wait(); });
  const Quiet quiet;
  moment.reset();
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Quiet quiet;
  if (const auto e = check_event(event, "cudaEventSynchronize")) return e;
  if (const auto e = refuse_captured_event(event, "cudaEventSynchronize")) return e;
  if (const auto e = vgpu::refuse_unsafe("cudaEventSynchronize")) return e;
  if (const auto moment = moment_of(event)) moment->wait();
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Quiet quiet;
  if (const auto e = check_event(event, "cudaEventQuery")) return e;
  if (const auto e = refuse_captured_event(event, "cudaEventQuery")) return e;
  if (const auto e = vgpu::refuse_unsafe("cudaEventQuery")) return e;
  const vgpu::Driver::Turn turn(vgpu::Device::current().driver(), vgpu::Driver::Call::asks);
  const auto moment = moment_of(event);
  return moment == nullptr || moment->reached() ? cudaSuccess : not_ready();
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const Quiet quiet;
  if (const auto e = check_event(start, "cudaEventElapsedTime")) return e;
  if (const auto e = check_event(end, "cudaEventElapsedTime")) return e;
  if (((start->flags | end->flags) & cudaEventDisableTiming) != 0)
    return fail(cudaErrorInvalidResourceHandle,
                "cudaEventElapsedTime: the event was made with cudaEventDisableTiming");
  const auto from = start->moment, to = end->moment;
  if (from == nullptr || to == nullptr)
    return fail(cudaErrorInvalidResourceHandle,
                "cudaEventElapsedTime: the event was never recorded");
  if (!from->reached() || !to->reached()) return not_ready();
  *milliseconds = std::chrono::duration<float, std::milli>(to->time() - from->time()).count();
  return cudaSuccess;
}
