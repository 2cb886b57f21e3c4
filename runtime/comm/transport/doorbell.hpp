// Sleeping until a counter changes, and waking a rank that sleeps. Each side writes its own
// variable before it reads the other side's.
//
//     the sleeper                                 the publisher
//       seen = rings                                counter = value
//       sleeping = yes                              sleeping?  no: done, without a system call
//       counter moved?  yes: do not sleep                      yes: rings += 1, wake
//       sleep, while rings == seen
//       sleeping = no
//
// Each side stores to one location and then loads from another. Both operations are seq_cst, so
// either the sleeper sees the counter or the publisher sees the sleeper. With release and acquire,
// both loads could return the old value (this happens on arm64), and the sleeper would never wake.
// tests/memory_order runs these functions in every order that C++ allows.
#pragma once

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/comm/failure/rank_report.hpp"

namespace ringsmith::comm {

// How a rank sleeps: not at all, on `rings`, or on its sockets if it also has remote peers.
constexpr std::uint32_t kAwake = 0, kOnFutex = 1, kOnSockets = 2;

struct alignas(kLine) Doorbell {
  std::atomic<std::uint32_t> sleeping{kAwake};
  std::atomic<std::uint32_t> rings{0};

  // Called by the owner. ready() must load counters with seq_cst; wait(seen) sleeps while `rings`
  // equals `seen`, and may return early.
  template <class Ready, class Wait>
  void sleep_unless(Ready ready, std::uint32_t how, Wait wait) {
    const std::uint32_t seen = rings.load();
    sleeping.store(how);
    if (!ready()) wait(seen);
    sleeping.store(kAwake);
  }
  // The wait of an owner that sleeps on `rings`: until wake_futex(), for less than a second.
  void sleep_on_futex(std::uint32_t seen, std::chrono::nanoseconds limit) {
    const timespec time{0, static_cast<long>(limit.count())};
    syscall(SYS_futex, &rings, FUTEX_WAIT, seen, &time, nullptr, 0);
  }

  // Called by any rank after publish_count().
  [[nodiscard]] bool owner_sleeps() const { return sleeping.load() != kAwake; }
  // Rings the bell. Returns how the owner sleeps, so that the caller can wake it.
  [[nodiscard]] std::uint32_t ring() {
    rings.fetch_add(1);
    return sleeping.load();
  }
  void wake_futex() { syscall(SYS_futex, &rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }
};

// Stores a counter that other ranks wait for, and publishes everything written before it.
inline void publish_count(std::atomic<std::uint64_t>& counter, std::uint64_t value) {
  counter.exchange(value, std::memory_order_seq_cst);
}

}  // namespace ringsmith::comm
