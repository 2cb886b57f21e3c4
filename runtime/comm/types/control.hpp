// What one rank writes and all ranks of the host read: the first pages of its segment.
//
// Counters only grow and are never reset. Each is written by one rank only and lies on a cache line
// of its own (two lines, because CPUs fetch lines in pairs), so that polling one disturbs nobody.
// Fields of a record are relaxed atomics; the counter stored last, with release, publishes them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ringsmith::comm {

constexpr std::size_t kLine = 128;  // bytes
constexpr std::uint64_t kNotShared = ~std::uint64_t{0};
constexpr std::size_t kFailureText = 1536;  // bytes

// "I am in this call": one entry of the agreement barrier that opens every collective. Two of them
// take turns; a rank can be one round ahead of the others, never two.
struct alignas(64) Arrival {
  std::atomic<std::uint64_t> round{0};  // published last
  std::atomic<std::uint64_t> call{0};   // Call::pack()
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> sequence{0};
  std::atomic<std::uint64_t> input{0};   // offsets of the buffers in the rank's segment, bytes, or
  std::atomic<std::uint64_t> output{0};  // kNotShared
  std::atomic<std::uint64_t> site{0};    // where the call was made: index of Control::sites
};

// Sleeping and waking. A waiter that has waited long says so in `sleeping`, looks once more, and
// sleeps on `rings`, or on its sockets if it has remote peers too; whoever publishes a counter
// looks at `sleeping` (no system call when kAwake).
constexpr std::uint32_t kAwake = 0, kOnFutex = 1, kOnSockets = 2;
struct alignas(kLine) Doorbell {
  std::atomic<std::uint32_t> sleeping{kAwake};
  std::atomic<std::uint32_t> rings{0};
};

// How a rank left its group: in good order, or because an exception unwound its stack.
constexpr std::uint32_t kStays = 0, kInOrder = 1, kThrownOut = 2;

// For the error messages of the others: what this rank is doing.
struct alignas(kLine) Board {
  std::atomic<std::uint64_t> call{0};
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> sequence{0};
  std::atomic<std::int64_t> step{-1};
  std::atomic<std::int32_t> waits_for{-1};  // rank, or -1: not waiting
  std::atomic<std::uint32_t> busy{0};       // inside a call
  std::atomic<std::uint32_t> left{kStays};  // the group was destroyed
  std::atomic<std::uint32_t> site{0};       // index of Control::sites
  std::atomic<std::uint32_t> waited{0};     // for so long already, milliseconds
};

enum class FailureKind : std::uint32_t { none, mismatch, peer_lost, timeout, other, aborted };

// The first failure this rank met, for ranks that would otherwise wait for it in vain.
struct alignas(kLine) Failure {
  std::atomic<FailureKind> kind{FailureKind::none};  // published last
  std::atomic<std::int32_t> culprit{-1};
  std::atomic<char> text[kFailureText]{};
};

// A place in the program as text ("train.cpp:120"): peers cannot follow this process's pointers.
// The first one stands for "nobody knows".
constexpr int kSites = 128;
constexpr std::size_t kSiteText = 64;  // bytes
struct SiteText {
  std::atomic<char> text[kSiteText]{};
};

struct Control {
  alignas(kLine) Arrival arrivals[2];
  alignas(kLine) std::atomic<std::uint64_t> progress{0};
  Doorbell bell;
  Board board;
  Failure failure;
  SiteText sites[kSites];
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
