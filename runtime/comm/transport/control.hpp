// What one rank writes and all ranks of the host read: the first pages of its segment.
//
// Counters only grow and are never reset. Each is written by one rank only and lies on a cache line
// of its own (two lines, because CPUs fetch lines in pairs), so that polling one disturbs nobody.
// Fields of a record are relaxed atomics; the counter stored last, with release, publishes them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/comm/failure/rank_report.hpp"

namespace ringsmith::comm {

// Sleeping and waking. A waiter that has waited long says so in `sleeping`, looks once more, and
// sleeps on `rings`, or on its sockets if it has remote peers too; whoever publishes a counter
// looks at `sleeping` (no system call when kAwake).
constexpr std::uint32_t kAwake = 0, kOnFutex = 1, kOnSockets = 2;
struct alignas(kLine) Doorbell {
  std::atomic<std::uint32_t> sleeping{kAwake};
  std::atomic<std::uint32_t> rings{0};
};

struct Control : RankReport {
  alignas(kLine) Arrival arrivals[2];
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

}  // namespace ringsmith::comm
