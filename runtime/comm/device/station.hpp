// A station: memory of a rank's device where its peers' kernels put messages and counters.
//
// Every wait of the kernel engine is a poll of the rank's own memory, and every hand-off a store
// into the peer's memory: over NVLink a store does not block, but a load takes a round trip.
//
//     [ Station: counters ][ packets, two halves ]      [ slots of ring 0 ]      [ slots of ring 1 ]
//
// A rank allocates the slots of a ring at its first call through them (kernel_engine.hpp):
//
// | memory of a rank of 8, on a large device | bytes   | allocated               |
// |------------------------------------------|---------|-------------------------|
// | counters                                 | 140 KiB | with the group          |
// | packets                                  | 512 KiB | with the group          |
// | slots of a ring: 16 channels x 4 x 512 KiB | 32 MiB | for its first message   |
//
// A group whose messages are all short, or that only uses shared buffers up to 4 MiB, never needs
// slots; a second ring is only for gloo_ring.
//
//          previous rank                this rank                       next rank
//       writes slots and tail --->  polls tail, reads slots
//                                   writes slots and tail  --->  polls tail, reads slots
//       polls head            <---  writes head (credit)
//                                   polls head             <---  writes head (credit)
//
// This is the handshake of transport/channel.hpp: counters only grow and continue from one
// collective to the next. Each counter is written by one rank only and has its own cache line. Each
// block of the kernel has its own channel of the ring, so blocks do not interact.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cuda/atomic>

namespace ringsmith::comm::cuda_ipc {

constexpr int kMostRanks = 64;
constexpr int kMostChannels = 16;  // blocks of a kernel
constexpr int kWarp = 32;          // threads
constexpr int kMostThreads = 480;  // per block, that copy: with the warp that hands over, 512
constexpr int kRings = 2;          // 0: to rank + 1;  1: to rank - 1, as in gloo
// Two slots are enough for progress. With two more, the sender does not wait for a credit that is
// on its way.
constexpr std::uint64_t kRingSlots = 4;
// A block sends a piece of its chunk as two messages, so that the next rank works on the first
// while this rank works on the second.
constexpr std::size_t kSlotsPerPiece = 2;
// A shorter message takes less time than its hand-off.
constexpr std::size_t kLeastMessageBytes = std::size_t{16} << 10;

struct alignas(128) Counter {
  std::uint64_t value;
};

struct Channel {
  Counter tail;  // messages that the previous rank has put into our slots
  Counter head;  // messages from us that the next rank has taken out of its slots
  // Used only by this rank; stored here between two kernels:
  alignas(128) std::uint64_t sent;  // messages put into the next rank's slots
  std::uint64_t taken;              // messages taken out of our slots
};

// One per rank, mapped by its peers; zero when the group is created.
struct Station {
  Channel channels[kRings][kMostChannels];
  Counter arrived[kMostRanks][kMostChannels];  // direct.cu: [rank][block]: last meeting reached
  Counter claimed;                             // 1: a block of this rank writes the report
};

// A line of the low-latency protocol: two words, each with four bytes of data and the call's
// number.
constexpr std::size_t kLineData = 8;    // bytes
constexpr std::size_t kLineBytes = 16;  // bytes

// Largest work buffer of a ring by packets, and longest message of the one-shot; bytes.
constexpr std::size_t kMostPacketBytes = std::size_t{32} << 10;
constexpr std::size_t kMostOneShotBytes = std::size_t{16} << 10;

// Launch configuration of the kernel engine; must be the same on all ranks.
struct Shape {
  int channels = 1;            // blocks of a kernel, and channels of a ring
  int threads = 64;            // per block, that copy
  std::size_t slot_bytes = 0;  // a multiple of 16

  bool operator==(const Shape&) const = default;
};

// Set by tests only.
struct Tuning {
  Shape shape{0, 0, 0};            // 0: chosen for the device
  std::uint32_t packet_calls = 0;  // initial number of calls by packets
};

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

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
// From the start of a ring's slots.
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

// The places where one processor's stores become visible to another's loads.
//
// Each pair is a release at one end and an acquire at the other, at system scope, because device
// scope covers only one GPU and volatile orders nothing. A test weakens each end in turn and
// expects the detector to report the race (tests/comm/cuda/ordering_test.cpp). A weak end is
// relaxed; the stores of tail and head, which share one fence, then come before it.
enum class End {
  none,
  tail_release,     // "the slot is filled":  the sender's stores to the slot ...
  tail_acquire,     // ... are seen by the receiver's loads of it
  head_release,     // "the slot is free":  the receiver's loads of the slot ...
  head_acquire,     // ... happen before the sender's next stores to it
  arrival_release,  // "I am here":  this rank's reads and writes so far ...
  arrival_acquire,  // ... happen before the peers' accesses after the meeting
  report_release,   // "a block has given up":  its notes about its wait ...
  report_acquire,   // ... are visible to the host
};

constexpr bool acquires(End end) {
  return end == End::tail_acquire || end == End::head_acquire || end == End::arrival_acquire ||
         end == End::report_acquire;
}
constexpr cuda::memory_order strong_order(End end) {
  return acquires(end) ? cuda::memory_order_acquire : cuda::memory_order_release;
}

#ifdef RINGSMITH_WEAKEN  // in the program of that test
inline End weakened = End::none;
inline bool is_weak(End end) { return end == weakened; }
inline cuda::memory_order order_of(End end) {
  return is_weak(end) ? cuda::memory_order_relaxed : strong_order(end);
}
#else
constexpr bool is_weak(End) { return false; }
constexpr cuda::memory_order order_of(End end) { return strong_order(end); }
#endif

template <class T>
using SystemAtomic = cuda::atomic_ref<T, cuda::thread_scope_system>;

}  // namespace ringsmith::comm::cuda_ipc
