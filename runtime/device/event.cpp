// Events are kept and used again: making one costs a call into the driver.
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/device/cuda_check.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith {

namespace {

// Idle events of one device and kind. Never destroyed, as the streams.
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

  // A wait that was queued for it holds on to the point it had then.
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
  const DeviceGuard guard(stream.device());  // an event belongs to the device it was made on
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
  if (!defined()) return true;
  const cudaError_t code = cudaEventQuery(handle_);
  if (code == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  cuda_check(code);
  return true;
}

void Event::synchronize() const {
  if (defined()) cuda_check(cudaEventSynchronize(handle_));
}

double seconds_between(const Event& from, const Event& to) {
  require(from.defined() && to.defined(), "seconds_between needs two recorded events");
  float milliseconds = 0;
  cuda_check(cudaEventElapsedTime(&milliseconds, from.get(), to.get()));
  return static_cast<double>(milliseconds) / 1e3;
}

}  // namespace ringsmith
