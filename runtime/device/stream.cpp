#include "runtime/device/stream.hpp"

#include <mutex>
#include <utility>
#include <vector>

#include "runtime/device/capture.hpp"
#include "runtime/device/capture_guard.hpp"
#include "runtime/device/cuda_check.hpp"

namespace ringsmith {

struct Stream::State {
  cudaStream_t handle;
  Device device;
  Priority priority;
};

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

using Priority = Stream::Priority;

cudaStream_t new_stream(Device device, Priority priority) {
  const DeviceGuard guard(device);
  int least = 0, greatest = 0;
  cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                          priority == Priority::high ? greatest : least));
  return stream;
}

template <class T>
T& slot(std::vector<T>& slots, Device device) {
  if (device.is_cpu()) throw UsageError("the CPU has no streams");
  if (slots.size() <= at(device.index)) {
    require_device(device);
    slots.resize(at(device_count()));
  }
  return slots[at(device.index)];
}

// False for cudaErrorNotReady, true for success; throws CudaError for other codes.
bool is_done(cudaError_t answer) {
  if (answer == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  cuda_check(answer);
  return true;
}

thread_local std::vector<Stream> current_streams;  // undefined: the compute stream

}  // namespace

// All streams of the process. Never destroyed, because static objects may still free device memory.
class StreamPool {
 public:
  static StreamPool& instance() {
    static auto* const pool = new StreamPool;
    return *pool;
  }

  Stream compute(Device device) {
    const std::scoped_lock lock(mutex_);
    Stream& stream = slot(compute_, device);
    if (!stream.defined())
      stream = Stream(std::make_shared<const Stream::State>(
          Stream::State{new_stream(device, Priority::normal), device, Priority::normal}));
    return stream;
  }

  Stream take(Device device, Priority priority) {
    const std::scoped_lock lock(mutex_);
    std::vector<cudaStream_t>& idle = slot(idle_of(priority), device);
    cudaStream_t handle = nullptr;
    if (idle.empty()) {
      handle = new_stream(device, priority);
    } else {
      handle = idle.back();
      idle.pop_back();
    }
    return Stream(std::shared_ptr<const Stream::State>(new Stream::State{handle, device, priority},
                                                       [this](const Stream::State* state) {
                                                         give(*state);
                                                         delete state;
                                                       }));
  }

 private:
  void give(const Stream::State& state) {
    const std::scoped_lock lock(mutex_);
    slot(idle_of(state.priority), state.device).push_back(state.handle);
  }
  std::vector<std::vector<cudaStream_t>>& idle_of(Priority priority) {
    return priority == Priority::high ? idle_high_ : idle_;
  }

  std::mutex mutex_;
  std::vector<Stream> compute_;  // by device, like idle_ and idle_high_
  std::vector<std::vector<cudaStream_t>> idle_, idle_high_;
};

Stream Stream::create(Device device, Priority priority) {
  return StreamPool::instance().take(device, priority);
}
Stream Stream::compute(Device device) { return StreamPool::instance().compute(device); }
Stream Stream::current(Device device) {
  Stream& stream = slot(current_streams, device);
  if (!stream.defined()) stream = compute(device);
  return stream;
}
Stream Stream::current() { return current(current_device()); }

Device Stream::device() const {
  if (!defined()) throw UsageError("use of an undefined stream");
  return state_->device;
}
Stream::Priority Stream::priority() const {
  if (!defined()) throw UsageError("use of an undefined stream");
  return state_->priority;
}
CUstream_st* Stream::get() const {
  if (!defined()) throw UsageError("use of an undefined stream");
  return state_->handle;
}

void Stream::synchronize() const {
  capture::refuse("wait for the GPU, because its kernels have not run: wait after the replay");
  const CaptureGuard guard;
  cuda_check(cudaStreamSynchronize(get()));
}

bool Stream::is_idle() const {
  const CaptureGuard guard;
  return is_done(cudaStreamQuery(get()));
}

void Stream::wait(const Event& event) const {
  if (event.defined()) cuda_check(cudaStreamWaitEvent(get(), event.get(), 0));
}

void Stream::wait(const Stream& other) const {
  if (*this != other) wait(Event::record(other));
}

StreamGuard::StreamGuard(const Stream& stream) {
  if (!stream.defined()) return;
  previous_ = Stream::current(stream.device());
  slot(current_streams, stream.device()) = stream;
}

StreamGuard::~StreamGuard() {
  if (previous_.defined()) slot(current_streams, previous_.device()) = previous_;
}

namespace {

// Idle events of one device and kind, kept because creating an event costs a driver call. Never
// destroyed, like the streams.
class EventPool {
 public:
  static EventPool& of(Device device, Event::Timing timing) {
    static auto* const pools =
        new std::vector<EventPool>(2 * static_cast<std::size_t>(device_count()));
    return pools->at(2 * static_cast<std::size_t>(device.index) +
                     (timing == Event::Timing::on ? 1 : 0));
  }

  cudaEvent_t take(Event::Timing timing) {
    {
      const std::scoped_lock lock(mutex_);
      if (!idle_.empty()) {
        const cudaEvent_t event = idle_.back();
        idle_.pop_back();
        return event;
      }
    }
    cudaEvent_t event = nullptr;
    const unsigned flags = timing == Event::Timing::on ? cudaEventDefault : cudaEventDisableTiming;
    cuda_check(cudaEventCreateWithFlags(&event, flags));
    return event;
  }

  // A queued wait waits for the record made before it, so reusing the event does not affect it.
  void give(cudaEvent_t event) {
    const std::scoped_lock lock(mutex_);
    idle_.push_back(event);
  }

 private:
  std::mutex mutex_;
  std::vector<cudaEvent_t> idle_;
};

}  // namespace

Event Event::record(const Stream& stream, Timing timing) {
  const DeviceGuard guard(stream.device());  // an event is created on the current device
  Event event;
  event.device_ = stream.device();
  event.timing_ = timing;
  event.handle_ = EventPool::of(stream.device(), timing).take(timing);
  cuda_check(cudaEventRecord(event.handle_, stream.get()));
  return event;
}

Event::Event(Event&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      device_(other.device_),
      timing_(other.timing_) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(device_, other.device_);
  std::swap(timing_, other.timing_);
  return *this;
}

Event::~Event() {
  if (handle_ != nullptr) EventPool::of(device_, timing_).give(handle_);
}

bool Event::has_happened() const {
  const CaptureGuard guard;
  return !defined() || is_done(cudaEventQuery(handle_));
}

void Event::synchronize() const {
  const CaptureGuard guard;
  if (defined()) cuda_check(cudaEventSynchronize(handle_));
}

double seconds_between(const Event& from, const Event& to) {
  require(from.defined() && to.defined(), "seconds_between needs two recorded events");
  float milliseconds = 0;
  cuda_check(cudaEventElapsedTime(&milliseconds, from.get(), to.get()));
  return static_cast<double>(milliseconds) / 1e3;
}

}  // namespace ringsmith
