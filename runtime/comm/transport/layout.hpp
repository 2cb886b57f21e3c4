// What one rank writes and all ranks of the host read: its segment, laid out the same for every
// rank of a group.
//
//     control | two staging areas | a Lane for each peer and FIFO | their slots | flight recorder |
//     communication memory
//
// Counters only grow and are never reset. Each is written by one rank only and lies on a cache line
// of its own (two lines, because CPUs fetch lines in pairs), so that polling one disturbs nobody.
// Fields of a record are relaxed atomics; the counter stored last, with release, publishes them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/comm/failure/rank_report.hpp"
#include "runtime/comm/transport/doorbell.hpp"

namespace ringsmith::comm {

struct Control : RankReport {
  alignas(kLine) Answer answers[2];
  alignas(kLine) std::atomic<std::uint64_t> progress{0};
  Doorbell bell;
};

// One rank's counters towards and from one peer, for one of the FIFOs between them (channel.hpp).
struct Lane {
  alignas(kLine) std::atomic<std::uint64_t> tail{0};  // messages put into the slots for the peer
  alignas(kLine) std::atomic<std::uint64_t> head{0};  // messages taken out of the peer's slots
};

// Slots are written with ordinary stores: their reader takes the lines from the writer's cache.
// With non-temporal stores it fetches them from memory, at less than half the speed. Slots of 32 to
// 256 KiB, 2 to 8 of them, were within a tenth of each other on two cores with 2 MiB of L2.
constexpr int kLanes = 3;  // FIFOs between two ranks: two for collectives, one for send and recv
constexpr int kSendLane = 2;
constexpr std::size_t kSlots = 8;                          // messages in flight on a lane
constexpr std::size_t kSlotBytes = std::size_t{64} << 10;  // payload of one message
// Over sockets a message costs a system call at each end and a packet for each 64 KiB begun. This
// is three packets of the loopback, with the headers.
constexpr std::size_t kWireSlotBytes = std::size_t{188} << 10;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");

constexpr std::size_t round_up_to_page(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  return (bytes + kPage - 1) / kPage * kPage;
}

class Layout {
 public:
  // slot_bytes: room for the payload of one message.
  explicit Layout(int world, std::size_t slot_bytes = kSlotBytes)
      : world_(static_cast<std::size_t>(world)), slot_bytes_(slot_bytes) {}

  static constexpr std::size_t kStaging = std::size_t{256} << 10;  // bytes

  // Offsets in bytes. Staging memory for small messages: two areas, used alternately.
  [[nodiscard]] static std::size_t staging(std::uint64_t round) {
    return kStagingAt + (round % 2) * kStaging;
  }
  // What the rank writes of its FIFO number `index` with `peer`, and the slots it fills for the
  // peer.
  [[nodiscard]] std::size_t lane(int peer, int index) const {
    return kLanesAt + fifo(peer, index) * sizeof(Lane);
  }
  [[nodiscard]] std::size_t slots(int peer, int index) const {
    return slots_at() + fifo(peer, index) * kSlots * slot_bytes_;
  }
  // The FIFO, 0 to kLanes - 1, whose counters or slots stand there; -1 for what is for all.
  [[nodiscard]] int lane_at(std::size_t offset) const {
    if (offset < kLanesAt) return -1;
    const std::size_t fifo = offset < slots_at() ? (offset - kLanesAt) / sizeof(Lane)
                                                 : (offset - slots_at()) / (kSlots * slot_bytes_);
    return static_cast<int>(fifo % kLanes);
  }
  // Before it everything is for all ranks, from it on each slot is for one.
  [[nodiscard]] std::size_t first_slot() const { return slots_at(); }
  [[nodiscard]] std::size_t slot_bytes() const { return slot_bytes_; }
  [[nodiscard]] std::size_t slots_of_peer() const {
    return kLanes * kSlots * slot_bytes_;
  }  // bytes
  // What the rank has done lately: for ranks of its host, not mirrored.
  [[nodiscard]] std::size_t flight() const { return slots_at() + world_ * slots_of_peer(); }
  [[nodiscard]] std::size_t arena() const { return flight() + round_up_to_page(sizeof(Flight)); }

 private:
  static constexpr std::size_t kStagingAt = round_up_to_page(sizeof(Control));
  static constexpr std::size_t kLanesAt = kStagingAt + 2 * kStaging;

  [[nodiscard]] static std::size_t fifo(int peer, int index) {
    return static_cast<std::size_t>(peer) * kLanes + static_cast<std::size_t>(index);
  }
  [[nodiscard]] std::size_t slots_at() const {
    return round_up_to_page(kLanesAt + world_ * kLanes * sizeof(Lane));
  }

  std::size_t world_, slot_bytes_;
};

}  // namespace ringsmith::comm
