// Takes the place of runtime/comm/transport/segments.hpp, because its include folder comes first.
// Provides two ranks of one host in one process for the unchanged channel.hpp, without sockets,
// deadlines and reports. The counters, slots and bells are the real ones.
#pragma once

#include <memory>
#include <vector>

#include "labs/kit/explorer/explorer.hpp"
#include "runtime/comm/transport/layout.hpp"
#include "tests/memory_order/instrumented.hpp"

namespace ringsmith::comm {

struct SharedByTwo {
  Lane lanes[2];  // [rank]: the lane that this rank writes
  Doorbell bells[2];
  std::atomic<std::uint64_t> wakes[2]{};  // [rank]: the kernel's wake-ups for its bell
  std::byte slots[2][kSlots][16]{};       // [sender]
};

class Segments {
 public:
  Segments(SharedByTwo& shared, int rank) : shared_(&shared), rank_(rank) {}

  struct SmallLayout {
    static std::size_t slot_bytes() { return 16; }
  };
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] static int size() { return 2; }
  [[nodiscard]] static SmallLayout layout() { return {}; }
  [[nodiscard]] Lane& lane(int rank, int /*peer*/, int /*index*/) { return shared_->lanes[rank]; }
  [[nodiscard]] std::byte* slots(int rank, int /*peer*/, int /*index*/) {
    return shared_->slots[rank][0];
  }
  [[nodiscard]] static bool on_network(int /*rank*/) { return false; }
  void expose(int /*rank*/, const void* /*data*/, std::size_t /*size*/) {}
  void lend(int /*rank*/, const std::byte* /*data*/, std::byte* /*place*/, std::size_t /*size*/) {}

  // As in the real segments.hpp, for a rank of this host.
  void publish_to(int rank, std::atomic<std::uint64_t>& counter, std::uint64_t value) {
    publish_count(counter, value);
    Doorbell& bell = shared_->bells[rank];
    if (bell.owner_sleeps() && bell.ring() == kOnFutex) futex_wake(rank);
  }
  void note_to(int rank, std::atomic<std::uint64_t>& counter, std::uint64_t value) {
    publish_to(rank, counter, value);
  }
  // As in peers.cpp, for a rank that sleeps immediately.
  template <class Ready>
  void wait(const int& /*for_peer*/, Ready ready) {
    while (!ready())
      shared_->bells[rank_].sleep_unless(ready, kOnFutex,
                                         [&](std::uint32_t seen) { futex_wait(seen); });
  }

 private:
  // Simulates the kernel: FUTEX_WAIT compares the word and joins the sleepers in one critical
  // section, and FUTEX_WAKE wakes them in another. There are no spurious wake-ups and no timeouts.
  void futex_wait(std::uint32_t seen) {
    std::atomic<std::uint64_t>& wakes = shared_->wakes[rank_];
    const std::uint64_t before = wakes.fetch_add(0, std::memory_order_acq_rel);
    if (shared_->bells[rank_].rings.load(std::memory_order_relaxed) != seen) return;
    explorer::wait_until([&] { return wakes.load(std::memory_order_acquire) > before; });
  }
  void futex_wake(int rank) { shared_->wakes[rank].fetch_add(1, std::memory_order_acq_rel); }

  SharedByTwo* shared_;
  int rank_;
};

}  // namespace ringsmith::comm
