// cudaEventRecord puts a new Moment into the stream and assigns it to the event. A wait uses the
// Moment that the event has at the time of the call.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/vgpu/queue.hpp"

namespace vgpu {

struct EventCounters;

class Moment {
 public:
  Moment() = default;
  Moment(const Moment&) = delete;
  Moment& operator=(const Moment&) = delete;
  virtual ~Moment() = default;
  // Called when the stream reaches the moment. All callers of this class are Quiet (order.hpp).
  virtual void reach() = 0;
  // Everything before reach() happens before the code after wait(), and before the code after a
  // reached() that returned true.
  virtual void wait() = 0;
  [[nodiscard]] virtual bool reached() = 0;
};

// A moment of an event that only this process uses.
class LocalMoment : public Moment {
 public:
  void reach() override;
  void wait() override;
  bool reached() override;
  [[nodiscard]] std::chrono::steady_clock::time_point time();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  std::chrono::steady_clock::time_point time_;
  char order_ = 0;  // for ThreadSanitizer
};

}  // namespace vgpu

struct CUevent_st {
  unsigned flags = 0;
  int device = 0;
  std::mutex mutex;
  std::shared_ptr<vgpu::LocalMoment> moment;  // null: never recorded, and so complete
  // For an event between processes, instead of `moment`:
  std::shared_ptr<vgpu::EventCounters> counters;
  bool imported = false;
  vgpu::CapturePoint captured;  // if it was last recorded in a stream that was being captured
};

namespace vgpu {
// Registers the event, which may be used until cudaEventDestroy.
CUevent_st* living_event(std::unique_ptr<CUevent_st> made);

// ---- events between processes ----
//
// Two counters in a file that both processes map. Recording takes the next number. The event
// represents the last number taken, and is complete when `reached` is at least that number.
//
// Streams may contain records and waits of a destroyed event, so they share ownership of the
// counters.
struct alignas(64) EventCounters {
  std::atomic<std::uint32_t> recorded;
  std::atomic<std::uint32_t> reached;  // a futex
  std::atomic<std::int32_t> recorder;  // process that recorded last
  bool exported;  // the counters are never reused: other processes may use them
};

// Returns counters of another process, whose SharedEvents::file() is `file`, or null if they cannot
// be mapped.
[[nodiscard]] std::shared_ptr<EventCounters> open_counters(int file, std::size_t index);

// The counters that this process has made, in one anonymous file.
class SharedEvents {
 public:
  static SharedEvents& get();
  // Returns null if there are too many.
  [[nodiscard]] std::shared_ptr<EventCounters> make();
  [[nodiscard]] std::size_t index(const EventCounters* counters) const {
    return static_cast<std::size_t>(counters - all_);
  }
  [[nodiscard]] int file() const { return file_; }

  static constexpr std::size_t kBytes = 1 << 20;  // 16,384 events

 private:
  SharedEvents();
  void take_back(EventCounters* counters);

  int file_ = -1;
  EventCounters* all_ = nullptr;
  std::mutex mutex_;
  std::size_t made_ = 0;
  std::vector<EventCounters*> free_;
};

class SharedMoment : public Moment {
 public:
  SharedMoment(std::shared_ptr<EventCounters> counters, std::uint32_t number)
      : counters_(std::move(counters)), number_(number) {}
  void reach() override;
  void wait() override;
  bool reached() override;

 private:
  std::shared_ptr<EventCounters> counters_;
  std::uint32_t number_;
};

}  // namespace vgpu
