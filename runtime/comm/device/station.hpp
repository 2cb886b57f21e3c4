// A station: memory on a rank's device into which its peers' kernels write messages and counters.
//
// A kernel waits by polling its rank's own memory, and hands data off by storing into the peer's
// memory: over NVLink a store does not block, but a load takes a round trip.
//
//     [ Station: counters ][ packets, two halves ][ slots of ring 0 ][ slots of ring 1 ]
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

#include <cstddef>
#include <cstdint>
#include <cuda/atomic>

namespace ringsmith::comm::cuda_ipc {

constexpr int kMostRanks = 64;
constexpr int kMostChannels = 16;  // blocks per kernel
constexpr int kMostThreads = 512;  // per block
constexpr int kRings = 2;          // 0: to rank + 1;  1: to rank - 1, as in gloo
constexpr std::uint64_t kRingSlots = 8;
// A block sends each piece of its chunk as two messages, so that the next rank can process the
// first message while this rank fills the second.
constexpr std::size_t kSlotsPerPiece = 2;

struct alignas(128) Counter {
  std::uint64_t value;
};

struct Channel {
  Counter tail;  // messages that the previous rank has put into our slots
  Counter head;  // messages from us that the next rank has taken out of its slots
  // Used only by this rank's kernels, which keep their counts here between launches:
  alignas(128) std::uint64_t sent;  // messages put into the next rank's slots
  std::uint64_t taken;              // messages taken out of our slots
};

// Each rank has one, which its peers map. All bytes are zero when the group is created.
struct Station {
  Channel channels[kRings][kMostChannels];
  Counter arrived[kMostRanks][kMostChannels];  // [rank][block]: its last meeting (direct.cu)
  Counter claimed;                             // 1: a block of this rank writes the report
};

// A line of the low-latency protocol (packets.cuh): two words, each with four bytes of data and
// the number of the call.
constexpr std::size_t kLineData = 8;    // bytes
constexpr std::size_t kLineBytes = 16;  // bytes

// Size limits, in bytes: the work buffer of a packet ring, and the message of a one-shot call.
constexpr std::size_t kMostPacketBytes = std::size_t{32} << 10;
constexpr std::size_t kMostOneShotBytes = std::size_t{16} << 10;

// Launch configuration of the kernel engine; must be the same on all ranks.
struct Shape {
  int channels = 1;            // blocks of a kernel, and channels of a ring
  int threads = 64;            // per block
  std::size_t slot_bytes = 0;  // a multiple of 16

  bool operator==(const Shape&) const = default;
};

// Set by tests only.
struct Tuning {
  Shape shape{0, 0, 0};            // 0: chosen for the device
  std::uint32_t packet_calls = 0;  // initial value of the count of packet calls
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
constexpr std::size_t slots_at(int ring, int channel, int world, const Shape& shape) {
  const auto index = static_cast<std::size_t>(ring) * static_cast<std::size_t>(shape.channels) +
                     static_cast<std::size_t>(channel);
  return packets_at(0, world) + 2 * packet_half_bytes(world) +
         index * kRingSlots * shape.slot_bytes;
}
constexpr std::size_t station_bytes(int world, const Shape& shape) {
  return slots_at(kRings, 0, world, shape);
}

// The places where one processor's stores become visible to another's loads.
//
// Each pair is a release at one end and an acquire at the other, at system scope, because device
// scope covers only one GPU and volatile orders nothing. A test weakens each end in turn to relaxed
// and expects the race detector to report it (tests/comm/cuda/ordering_test.cpp).
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

#ifdef RINGSMITH_WEAKEN  // defined only for the program of that test
inline End weakened = End::none;
inline cuda::memory_order order_of(End end) {
  return end == weakened ? cuda::memory_order_relaxed : strong_order(end);
}
#else
constexpr cuda::memory_order order_of(End end) { return strong_order(end); }
#endif

template <class T>
using SystemAtomic = cuda::atomic_ref<T, cuda::thread_scope_system>;

}  // namespace ringsmith::comm::cuda_ipc
