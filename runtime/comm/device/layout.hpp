// The parts of a rank's memory into which its peers' kernels store, and their sizes.
//
//     [ Station: counters ][ packets, two halves ]    [ slots of ring 0 ]    [ slots of ring 1 ]
//
// A rank allocates the slots of a ring at the first call that uses them (KernelEngine::prepare).
//
// | memory of each of 8 ranks, on a large device | size    | allocated             |
// |----------------------------------------------|---------|-----------------------|
// | counters                                     | 140 KiB | with the group        |
// | packets                                      | 512 KiB | with the group        |
// | slots of a ring: 16 channels x 4 x 512 KiB   | 32 MiB  | for its first message |
//
// So a group needs no slots if its messages are short, or shared and at most 8 MiB long. Only
// gloo_ring has messages in ring 1.
#pragma once

#include <algorithm>

#include "runtime/comm/device/station.hpp"

namespace ringsmith::comm::cuda_ipc {

// ---- packets ----

// A line of the low-latency protocol: two words, each with four bytes of data and the call's
// number.
constexpr std::size_t kLineData = 8;    // bytes
constexpr std::size_t kLineBytes = 16;  // bytes

// Limits in bytes: of the work buffer of a ring that uses packets, and of a one-shot message.
constexpr std::size_t kMostPacketBytes = std::size_t{32} << 10;
constexpr std::size_t kMostOneShotBytes = std::size_t{16} << 10;

constexpr std::size_t lines_of(std::size_t bytes) { return (bytes + kLineData - 1) / kLineData; }

// Each half of the packet area holds one call's messages: either 2 (world - 1) chunks, each 1/world
// of the data plus at most two elements (gloo rounds up), or one whole message from every rank.
constexpr std::size_t packet_half_bytes(int world) {
  const auto ranks = static_cast<std::size_t>(world);
  const std::size_t ring = 2 * ranks * lines_of(kMostPacketBytes / ranks + 2 * kLineData);
  const std::size_t one_shot = ranks * lines_of(kMostOneShotBytes);
  return round_up((ring > one_shot ? ring : one_shot) * kLineBytes, 128);
}

constexpr std::size_t packets_at(std::uint32_t half, int world) {
  return round_up(sizeof(Station), 128) + half % 2 * packet_half_bytes(world);
}
constexpr std::size_t station_bytes(int world) {
  return packets_at(0, world) + 2 * packet_half_bytes(world);
}

// ---- messages and slots of a ring ----

// A block sends a piece of its chunk as two messages, so that the next rank works on the first
// while this rank works on the second.
constexpr std::size_t kSlotsPerPiece = 2;
// A shorter message takes less time than its hand-off.
constexpr std::size_t kLeastMessageBytes = std::size_t{16} << 10;

// Offset from the start of a ring's slots.
constexpr std::size_t slots_of_channel_at(int channel, const Shape& shape) {
  return static_cast<std::size_t>(channel) * kRingSlots * shape.slot_bytes;
}
constexpr std::size_t ring_slots_bytes(const Shape& shape) {
  return slots_of_channel_at(shape.channels, shape);
}
// The longest message of a call in which a block's share of a chunk has `share` bytes.
constexpr std::size_t message_bytes_for(std::size_t share, const Shape& shape) {
  const std::size_t split = round_up((share + kSlotsPerPiece - 1) / kSlotsPerPiece, 16);
  return std::min(std::max(split, kLeastMessageBytes), shape.slot_bytes);
}

// Returns the number of threads in a block with `copying` copying threads. If these fill no warp,
// they also do the hand-off; otherwise one more thread does it.
constexpr unsigned ring_threads(int copying) {
  return static_cast<unsigned>(copying < kWarp ? copying : copying + 1);
}
constexpr unsigned copying_threads(unsigned ring_threads) {
  return ring_threads < kWarp ? ring_threads : ring_threads - 1;
}

}  // namespace ringsmith::comm::cuda_ipc
