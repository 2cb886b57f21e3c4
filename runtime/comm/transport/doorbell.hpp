// Sleeping until a counter moves, and waking who sleeps: each says something, then looks at what
// the other says.
//
//     who sleeps                                  who publishes
//       seen = rings                                counter = value
//       sleeping = yes                              sleeping?  no: done, without a system call
//       counter moved?  yes: do not sleep                      yes: rings += 1, wake
//       sleep, while rings == seen
//       sleeping = no
//
// The two middle lines are a store and a load of another location, on both sides. They are seq_cst:
// release and acquire would allow both loads to read the old value (which shows on arm64), and the
// sleeper to be left asleep. So: either it sees the counter, or the publisher sees it.
// tests/memory_order runs these functions in every order that C++ allows.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/comm/failure/rank_report.hpp"

namespace ringsmith::comm {

// How a rank sleeps: not at all, on `rings`, or on its sockets if it has remote peers too.
constexpr std::uint32_t kAwake = 0, kOnFutex = 1, kOnSockets = 2;

struct alignas(kLine) Doorbell {
  std::atomic<std::uint32_t> sleeping{kAwake};
  std::atomic<std::uint32_t> rings{0};

  // The owner's. ready() loads counters seq_cst; wait(seen) ends when `rings` is not `seen`.
  template <class Ready, class Wait>
  void sleep_unless(Ready ready, std::uint32_t how, Wait wait) {
    const std::uint32_t seen = rings.load();
    sleeping.store(how);
    if (!ready()) wait(seen);
    sleeping.store(kAwake);
  }
  // Everybody's, after publish_count().
  [[nodiscard]] bool owner_sleeps() const { return sleeping.load() != kAwake; }
  // How the owner sleeps, and so is to be woken.
  [[nodiscard]] std::uint32_t ring() {
    rings.fetch_add(1);
    return sleeping.load();
  }
};

// Stores a counter that others wait for, and with it all that was written before.
inline void publish_count(std::atomic<std::uint64_t>& counter, std::uint64_t value) {
  counter.exchange(value, std::memory_order_seq_cst);
}

}  // namespace ringsmith::comm
