// Events. cudaEventRecord puts a new Moment into the stream; the event then stands for that moment,
// and whoever waits takes the moment that the event stands for when the wait is called.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace vgpu {

struct EventCounters;

class Moment {
 public:
  Moment() = default;
  Moment(const Moment&) = delete;
  Moment& operator=(const Moment&) = delete;
  virtual ~Moment() = default;
  // The stream has come to it. All are called Quiet.
  virtual void reach() = 0;
  // What came before reach() comes before what follows wait(), or a reached() that says yes.
  virtual void wait() = 0;
  [[nodiscard]] virtual bool reached() = 0;
};

// A moment of this process; shared_event.hpp has those between processes.
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
  // Of an event between processes, instead:
  std::shared_ptr<vgpu::EventCounters> counters;
  bool imported = false;
};

namespace vgpu {
// The event may be used from now on, until cudaEventDestroy.
CUevent_st* living_event(std::unique_ptr<CUevent_st> made);
}  // namespace vgpu
