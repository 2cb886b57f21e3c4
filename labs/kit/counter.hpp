// A count in shared memory: one process writes it, others read it, and it only grows.
//
//     data first ... then counter.publish(n)        (release: the data is visible to whoever reads
//     n) counter.wait_at_least(n, ...) ... then data   (acquire: what was written before n is
//     there)
//
// A count that grows forever needs no reset, so no one has to know whether the other side has seen
// the last round: that is why there is no function here that sets it back.
//
// Memory from kit::Processes is zeroed, and a Counter of zero bytes is a Counter of value 0.
#pragma once

#include <atomic>
#include <cstdint>

namespace kit {

class Counter {
 public:
  [[nodiscard]] std::uint64_t read() const;
  // In tests, the kit may pause right after this: whatever should have been done before it, and was
  // not, then shows.
  void publish(std::uint64_t value);
  // Returns when the count is at least value. what and peer are for the report of a hang:
  // wait_at_least(7, "recv", 2) is printed as "recv from or to rank 2: waits for 7, sees 6".
  void wait_at_least(std::uint64_t value, const char* what, int peer) const;

 private:
  std::atomic<std::uint64_t> value_{0};
};

static_assert(sizeof(Counter) == 8 && std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace kit
