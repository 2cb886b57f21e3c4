// Streams: queues of work on a device. Work of one stream runs in order; streams run concurrently
// with each other and with the host.
//
//   host          launch launch launch .................... synchronize()
//   compute       [kernel][kernel][kernel] <- event
//   communication                  wait(event) [copy][reduce] ...
//
// The legacy default stream is not used, because it waits for all streams. Each device has
// - a compute stream, which all threads of the process share, as in PyTorch, so that the work they
//   queue is ordered. It is every thread's current stream until a StreamGuard sets another one;
// - any number of other streams (create()). High-priority streams are for collectives: their
//   kernels should get the next free multiprocessor before concurrent kernels of backward.
//
#pragma once

#include <memory>

#include "runtime/device/device.hpp"

struct CUstream_st;
struct CUevent_st;

namespace ringsmith {

class Event;

class Stream {
 public:
  Stream() = default;  // undefined: the CPU has none

  enum class Priority : bool { normal, high };

  // Returns a stream that no other caller uses. When the last copy of the handle is destroyed, the
  // stream is kept for a later caller, even if work is still queued on it.
  [[nodiscard]] static Stream create(Device device, Priority priority = Priority::normal);
  [[nodiscard]] static Stream compute(Device device);
  // Both return the calling thread's current stream, on `device` or on the current device.
  [[nodiscard]] static Stream current(Device device);
  [[nodiscard]] static Stream current();

  [[nodiscard]] bool defined() const { return state_ != nullptr; }
  [[nodiscard]] Device device() const;
  [[nodiscard]] Priority priority() const;
  [[nodiscard]] CUstream_st* get() const;

  // Blocks the host until everything queued so far is done. Throws CudaError if any of it failed.
  void synchronize() const;
  [[nodiscard]] bool is_idle() const;

  // Later work on this stream starts after the event, or after everything queued on `other` so far.
  // Does not block the host. The streams may be on different devices.
  void wait(const Event& event) const;
  void wait(const Stream& other) const;

  bool operator==(const Stream&) const = default;

 private:
  struct State;
  friend class StreamGuard;
  friend class StreamPool;
  explicit Stream(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

// Blocks the host until the calling thread's current stream on the device is done, then throws
// errors that kernels have found (findings.hpp). No-op for the CPU.
void synchronize(Device device);

// Makes `stream` the calling thread's current stream on its device until the end of the scope. Does
// not change the current device. No-op for an undefined stream.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream previous_;
};

// A point in a stream: reached when everything queued before record() is done. Move-only.
class Event {
 public:
  enum class Timing : bool { off, on };  // on: allows seconds_between(), but is slower

  Event() = default;  // undefined: counts as happened
  static Event record(const Stream& stream, Timing timing = Timing::off);
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();

  [[nodiscard]] bool defined() const { return handle_ != nullptr; }
  [[nodiscard]] bool has_happened() const;  // CudaError if work before it failed
  void synchronize() const;                 // blocks the host
  [[nodiscard]] CUevent_st* get() const { return handle_; }
  [[nodiscard]] Device device() const { return device_; }

 private:
  CUevent_st* handle_ = nullptr;
  Device device_;
  Timing timing_ = Timing::off;
};

// Throws UsageError if either event is undefined, and CudaError unless both were recorded on the
// same device with Timing::on and have happened.
[[nodiscard]] double seconds_between(const Event& from, const Event& to);

}  // namespace ringsmith
