// Streams: queues of work on a device. Kernels and copies of one stream run in order; streams run
// beside each other, and the host beside them all.
//
//   host          launch launch launch .................... synchronize()
//   compute       [kernel][kernel][kernel] <- event
//   communication                  wait(event) [copy][reduce] ...
//
// There is no legacy default stream: it would wait for every other one. Each device has
// - a compute stream, the same one for all threads of the process: what one thread queued is seen
//   by the next, as PyTorch has it. It is every thread's current stream until a StreamGuard says
//   otherwise;
// - as many others as are held (create()): those of high priority are for collectives, whose
//   kernels are to get the next free multiprocessor before those of the backward pass beside them.
//
// Streams do not block each other and are made on first use.
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

  // A stream for this holder alone; when the last copy of the handle goes, the stream is kept for
  // the next caller, with whatever is still queued on it.
  [[nodiscard]] static Stream create(Device device, Priority priority = Priority::normal);
  [[nodiscard]] static Stream compute(Device device);
  // The calling thread's current stream on `device`, or on the current device.
  [[nodiscard]] static Stream current(Device device);
  [[nodiscard]] static Stream current();

  [[nodiscard]] bool defined() const { return state_ != nullptr; }
  [[nodiscard]] Device device() const;
  [[nodiscard]] Priority priority() const;
  [[nodiscard]] CUstream_st* get() const;

  // The host waits for everything queued so far. CudaError if some of it failed.
  void synchronize() const;
  [[nodiscard]] bool is_idle() const;

  // Work queued on this stream from now on starts after the event, or after everything that `other`
  // holds now. The host does not wait. The streams may be on different devices.
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

// The host waits for the calling thread's current stream on the device; nothing for the CPU.
void synchronize(Device device);

// Makes `stream` the calling thread's current one on its device, until the end of the scope. The
// current device stays what it is. Nothing for an undefined stream.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream previous_;
};

// A point in a stream: everything that was queued before record(). Movable, not copyable.
class Event {
 public:
  enum class Timing : bool { off, on };  // on: for seconds_between(), and slower

  Event() = default;  // undefined: has happened
  static Event record(const Stream& stream, Timing timing = Timing::off);
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();

  [[nodiscard]] bool defined() const { return handle_ != nullptr; }
  [[nodiscard]] bool has_happened() const;  // CudaError if work before it failed
  void synchronize() const;                 // the host waits
  [[nodiscard]] CUevent_st* get() const { return handle_; }
  [[nodiscard]] Device device() const { return device_; }

 private:
  CUevent_st* handle_ = nullptr;
  Device device_;
  Timing timing_ = Timing::off;
};

// Both recorded with Timing::on on one device, and happened (CudaError otherwise).
[[nodiscard]] double seconds_between(const Event& from, const Event& to);

}  // namespace ringsmith
