// A count in shared memory: one process writes it, others read it, and it only grows.
//
//     data first ... then counter.publish(n)          release: a process that sees n sees the data
//     counter.wait_at_least(n, ...) ... then data     acquire: all writes before n are visible
//
// It needs no reset, so a process need not know whether the other side has seen the last round.
// Memory from kit::Processes is zeroed, and a zero-filled Counter has the value 0.
#pragma once

#include <atomic>
#include <cstdint>

namespace kit {

class Counter {
 public:
  [[nodiscard]] std::uint64_t read() const;
  // In tests, the kit may pause here after the store, to expose code that follows this call
  // although it should precede it.
  void publish(std::uint64_t value);
  // Blocks until the count is at least value. what and peer are for the report of a hang:
  // wait_at_least(7, "recv", 2) is printed as "recv, rank 2: waits for 7, sees 6".
  void wait_at_least(std::uint64_t value, const char* what, int peer) const;

 private:
  std::atomic<std::uint64_t> value_{0};
};

static_assert(sizeof(Counter) == 8 && std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace kit
