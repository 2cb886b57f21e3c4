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
// are also in the rank's memory: layout.hpp.
#pragma once

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
  std::uint32_t packet_calls = 0;  // initial value of the count of packet calls
};

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
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

#ifdef RINGSMITH_WEAKEN  // defined only for the program of that test
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
