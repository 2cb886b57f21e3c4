// Where things are in a segment, the same for every rank of a group:
//
//     control | two windows | a Lane for each peer and FIFO | their slots | flight recorder |
//     communication memory
#pragma once

#include "runtime/comm/failure/rank_report.hpp"
#include "runtime/comm/transport/control.hpp"

namespace ringsmith::comm {

constexpr std::size_t round_up_to_page(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  return (bytes + kPage - 1) / kPage * kPage;
}

class Layout {
 public:
  // slot_bytes: room for the payload of one message.
  explicit Layout(int world, std::size_t slot_bytes = kSlotBytes)
      : world_(static_cast<std::size_t>(world)), slot_bytes_(slot_bytes) {}

  static constexpr std::size_t kWindow = std::size_t{256} << 10;  // bytes

  // Offsets in bytes. A window is staging memory for small messages; two of them take turns.
  [[nodiscard]] static std::size_t window(std::uint64_t round) {
    return kWindowsAt + (round % 2) * kWindow;
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
  static constexpr std::size_t kWindowsAt = round_up_to_page(sizeof(Control));
  static constexpr std::size_t kLanesAt = kWindowsAt + 2 * kWindow;

  [[nodiscard]] static std::size_t fifo(int peer, int index) {
    return static_cast<std::size_t>(peer) * kLanes + static_cast<std::size_t>(index);
  }
  [[nodiscard]] std::size_t slots_at() const {
    return round_up_to_page(kLanesAt + world_ * kLanes * sizeof(Lane));
  }

  std::size_t world_, slot_bytes_;
};

}  // namespace ringsmith::comm
