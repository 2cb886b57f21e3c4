// The flight recorder: what a rank did last, in its segment.
//
//   number  sequence  call                          site          started      ended
//     41       40     all_reduce(sum, f32, 1024)    train.cpp:88  1203.120 s   1203.124 s
//     42       41     all_reduce(sum, f32, 1024)    train.cpp:88  1203.128 s   -
//
// One writer (the thread whose turn it is), no lock; the oldest entry is overwritten. A reader
// takes what it finds: an entry that is being written has number 0. Because the segment is shared,
// a rank that was killed leaves its recorder to the survivors of its host. Times are of the
// kernel's tick (1 to 4 ms, and a few nanoseconds to read): enough to see who hung, and since when.
#pragma once

#include <atomic>
#include <cstdint>
#include <time.h>

namespace ringsmith::comm {

struct alignas(64) FlightEntry {
  std::atomic<std::uint64_t> number{0};  // of the operation in this group, from 1; published last
  std::atomic<std::uint64_t> call{0};    // Call::pack()
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> sequence{0};
  std::atomic<std::uint64_t> site{0};     // index of Control::sites
  std::atomic<std::uint64_t> started{0};  // nanoseconds of CLOCK_MONOTONIC
  std::atomic<std::uint64_t> ended{0};    // 0: it has not ended
};

constexpr std::uint64_t kFlightEntries = 1024;

struct Flight {
  FlightEntry entries[kFlightEntries];
};

// The owner's end.
class FlightRecorder {
 public:
  explicit FlightRecorder(Flight* flight) : flight_(flight) {}

  void begin(std::uint64_t call, std::uint64_t count, std::uint64_t sequence, std::uint64_t site) {
    FlightEntry& e = flight_->entries[++number_ % kFlightEntries];
    e.number.store(0, std::memory_order_relaxed);
    // Each with release: whoever sees one of them sees that the number is gone.
    e.call.store(call, std::memory_order_release);
    e.count.store(count, std::memory_order_release);
    e.sequence.store(sequence, std::memory_order_release);
    e.site.store(site, std::memory_order_release);
    e.started.store(now(), std::memory_order_release);
    e.ended.store(0, std::memory_order_release);
    e.number.store(number_, std::memory_order_release);
  }
  void end() {
    flight_->entries[number_ % kFlightEntries].ended.store(now(), std::memory_order_relaxed);
  }
  [[nodiscard]] static std::uint64_t now() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(t.tv_nsec);
  }

 private:
  Flight* flight_;
  std::uint64_t number_ = 0;
};

}  // namespace ringsmith::comm
