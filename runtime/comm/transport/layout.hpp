// A rank's segment: memory that all ranks of its host map. Only its owner writes it, except that
// peers ring its doorbell and may store results directly in its communication memory. The layout is
// the same for all ranks of a group.
//
//     control | two staging areas | a Lane for each peer and FIFO | their slots | flight recorder |
//     communication memory
//
// Counters only grow. Control::progress and a Lane's counters each have their own two cache lines
// (CPUs fetch lines in pairs), so polling one slows no other access. Only Doorbell::rings has
// several writers. A record's fields are relaxed atomics; the counter stored last publishes them.
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

// One rank's counters for one of the FIFOs between it and a peer (channel.hpp).
struct Lane {
  alignas(kLine) std::atomic<std::uint64_t> tail{0};  // messages put into the slots for the peer
  alignas(kLine) std::atomic<std::uint64_t> head{0};  // messages taken out of the peer's slots
};

// Slots are written with ordinary stores, so the reader gets the lines from the writer's cache.
// With non-temporal stores the reader would fetch them from memory, at less than half the speed. On
// two cores with 2 MiB of L2, 2 to 8 slots of 32 to 256 KiB differed in speed by less than a tenth.
constexpr int kLanes = 3;  // FIFOs from a rank to a peer: two for collectives, one for send/recv
constexpr int kSendLane = 2;
constexpr std::size_t kSlots = 8;                          // messages in flight on a lane
constexpr std::size_t kSlotBytes = std::size_t{64} << 10;  // payload of one message
// Over sockets a message costs a system call at each end, and on the loopback a packet for every
// 64 KiB. With the headers, a message of this size fills three packets.
constexpr std::size_t kWireSlotBytes = std::size_t{188} << 10;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");

constexpr std::size_t round_up_to_page(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  return (bytes + kPage - 1) / kPage * kPage;
}

class Layout {
 public:
  explicit Layout(int world, std::size_t slot_bytes = kSlotBytes)
      : world_(static_cast<std::size_t>(world)), slot_bytes_(slot_bytes) {}

  static constexpr std::size_t kStaging = std::size_t{256} << 10;  // bytes

  // All offsets are in bytes. The staging memory for small messages consists of two areas, used
  // alternately.
  [[nodiscard]] static std::size_t staging(std::uint64_t round) {
    return kStagingAt + (round % 2) * kStaging;
  }
  // Offsets of the rank's counters of FIFO `index` with `peer`, and of the slots in which this rank
  // sends to that peer.
  [[nodiscard]] std::size_t lane(int peer, int index) const {
    return kLanesAt + fifo(peer, index) * sizeof(Lane);
  }
  [[nodiscard]] std::size_t slots(int peer, int index) const {
    return slots_at() + fifo(peer, index) * kSlots * slot_bytes_;
  }
  // Returns the FIFO, 0 to kLanes - 1, to which the counters or slots at `offset` belong; -1 for
  // the memory before the lanes, which all ranks read.
  [[nodiscard]] int lane_at(std::size_t offset) const {
    if (offset < kLanesAt) return -1;
    const std::size_t fifo = offset < slots_at() ? (offset - kLanesAt) / sizeof(Lane)
                                                 : (offset - slots_at()) / (kSlots * slot_bytes_);
    return static_cast<int>(fifo % kLanes);
  }
  // Control, staging areas and counters are before the first slot.
  [[nodiscard]] std::size_t first_slot() const { return slots_at(); }
  [[nodiscard]] std::size_t slot_bytes() const { return slot_bytes_; }
  [[nodiscard]] std::size_t slots_of_peer() const {
    return kLanes * kSlots * slot_bytes_;
  }  // bytes
  // Only ranks of the same host read the flight recorder; it is not mirrored.
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
