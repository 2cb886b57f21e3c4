// A station: memory on a rank's device into which its peers' kernels write messages and counters.
//
// A kernel waits by polling its rank's own memory, and hands data off by storing into the peer's
// memory: over NVLink a store does not block, but a load takes a round trip.
//
//          previous rank                this rank                       next rank
//       writes slots and tail --->  polls tail, reads slots
//                                   writes slots and tail  --->  polls tail, reads slots
//       polls head            <---  writes head (credit)
//                                   polls head             <---  writes head (credit)
//
// This is the handshake of transport/channel.hpp: counters only grow and continue from one
// collective to the next. Each counter is written by one rank only and has its own cache line. Each
// block of the kernel has its own channel of the ring, so blocks do not interact. Packets and slots
// are in the same memory: device/layout.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringsmith::comm::cuda_ipc {

constexpr int kMostRanks = 64;
constexpr int kMostChannels = 16;  // blocks of a kernel
constexpr int kWarp = 32;          // threads
constexpr int kMostThreads = 480;  // copying threads of a block; the hand-off has one more warp
constexpr int kRings = 2;          // 0: to rank + 1;  1: to rank - 1, as in gloo
// Two slots are enough for progress. With two more, the sender does not wait for a credit that is
// on its way.
constexpr std::uint64_t kRingSlots = 4;

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

// Each rank has one Station, which its peers map. All bytes are zero when the group is created.
struct Station {
  Channel channels[kRings][kMostChannels];
  Counter arrived[kMostRanks][kMostChannels];  // [rank][block]: its last meeting (direct.cu)
  Counter claimed;                             // 1: a block of this rank writes the report
};

// Launch configuration of the kernel engine; must be the same on all ranks.
struct Shape {
  int channels = 1;            // blocks of a kernel, and channels of a ring
  int threads = 64;            // copying threads of a block
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

}  // namespace ringsmith::comm::cuda_ipc
