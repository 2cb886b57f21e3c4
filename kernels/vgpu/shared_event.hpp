// Events between processes: two counters in a file that both map. Recording takes the next number;
// the event stands for the last number taken, and is complete when `reached` has come so far.
//
// An event may be destroyed while streams still hold records of it and waits for it: counters live
// as long as anybody needs them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/vgpu/event.hpp"

namespace vgpu {

struct alignas(64) EventCounters {
  std::atomic<std::uint32_t> recorded;
  std::atomic<std::uint32_t> reached;  // a futex
  std::atomic<std::int32_t> recorder;  // process that recorded last
  bool exported;                       // the maker's: others may look at them for ever
};

// Counters of another process, whose SharedEvents::file() this is; null if there is no address
// space.
[[nodiscard]] std::shared_ptr<EventCounters> open_counters(int file, std::size_t index);

// The counters that this process has made, in one anonymous file.
class SharedEvents {
 public:
  static SharedEvents& get();
  // Null if there are too many.
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
