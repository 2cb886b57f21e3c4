// The interface between the kernel engine's host code and its kernels: the call that the host
// passes to a launch, and the report that a kernel writes if a wait does not end.
//
// Calls are plain data, copied into the kernel's arguments. Pointers are device pointers of the
// rank that launches: to its own memory, or to a peer's memory as mapped into this process.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/reduce.hpp"
#include "runtime/comm/device/ends.hpp"
#include "runtime/comm/device/layout.hpp"
#include "runtime/comm/types/collective.hpp"

struct CUstream_st;

namespace ringsmith::comm::cuda_ipc {

enum class Awaited : std::uint32_t {
  none,
  tail,     // a message from peer
  head,     // a credit: peer has taken a message out of a slot
  packet,   // a packet from peer
  arrival,  // the same block of peer reaches a meeting
};

// The record that a kernel writes if a wait does not end: which block of which rank waited for
// which event. It is in pinned host memory.
//
//     block: poll, poll, ... out of time, or stop set   --> fills the record, sets `written`
//                                                           and `stop`, ends
//     other blocks:                                             see stop, end
//     host:                                                     sees written, reads, throws
struct KernelReport {
  std::uint32_t stop;     // kernels must end: set by the host, or by the block that reports
  std::uint32_t written;  // 1: all fields below are valid
  Awaited awaited;
  std::int32_t rank, peer;
  std::uint32_t block;
  std::uint64_t operation;   // number of the operation in the group
  std::int64_t step;         // of the schedule
  std::uint64_t have, want;  // values of the counter or of the packet's flag
};

// True if the record is complete. The host may call this while the kernel runs.
inline bool has_written(KernelReport& report) {
  return SystemAtomic<std::uint32_t>(report.written).load(order_of(End::report_acquire)) != 0;
}

// How long a kernel waits for one event, by the device's clock, and where it reports a timeout. The
// kernel needs this limit because the host may be unable to stop it: a host thread that calls the
// driver may block there until the kernel ends.
struct KernelTimeout {
  KernelReport* report = nullptr;
  std::uint64_t limit = ~std::uint64_t{0};  // in polls, for tests that must not depend on a clock
  std::uint64_t operation = 0;              // number in the group, for the report
  std::uint64_t nanoseconds = ~std::uint64_t{0};
};

using kernels::Arithmetic;  // out = own op message

// A factor that Arithmetic::scale cannot express: an integer, whose products wrap around like the
// elements, or an element in device memory, loaded when the kernel runs. Only launch_ring() uses
// it, and only if Arithmetic::scaled is set.
struct Factor {
  std::uint64_t integer = 1;
  const std::byte* scalar = nullptr;
};

// A chunk of the work buffer, in elements.
struct Range {
  std::uint64_t begin, count;
};

// Positions on the ring are counted in the direction of the data: position p sends to p + 1.
// chunks[q] belongs to position q. In broadcast and reduce, chunk 0 is the whole buffer; the root
// is position 0 of a broadcast, and the last position of a reduce.
struct RingCall {
  Collective collective;
  DType dtype;
  bool other_sign;  // true for i8, u32 and u64, which have no DType: dtype is u8, i32 or i64
  Arithmetic arithmetic;
  Factor factor;
  int world, position;
  int rank, previous_rank, next_rank;  // for reports
  int ring;                            // index into Station::channels
  Shape shape;
  int blocks;  // to launch, at most shape.channels
  const std::byte* input;
  std::byte* output;
  std::uint64_t input_begin, output_begin;  // first elements, as indices into the work buffer
  std::byte *mine, *previous, *next;        // stations
  std::byte *slots, *next_slots;            // of this ring: of this rank, of the next
  std::uint64_t message_bytes;              // at most, a multiple of 16 (message_bytes_for)
  // The next rank's output, if all ranks can access it; or null. Only for all_reduce: there every
  // rank is known to have begun before complete elements reach it.
  std::byte* next_output;
  std::uint32_t packet_flag;   // number of this call among calls by packets
  std::uint64_t packets;       // from a station's start; the launch computes it
  std::uint64_t packet_lines;  // lines reserved for one message
  KernelTimeout timeout;
  Range chunks[kMostRanks];
};

// A call in which every rank exchanges data with every other rank.
struct DirectCall {
  DType dtype;
  Arithmetic arithmetic;
  int world, rank;
  Shape shape;
  int blocks;                 // to launch, at most shape.channels
  std::uint64_t meeting;      // direct: number of the first of its two meetings
  std::uint64_t share;        // direct: elements of a block, at most; the launch computes it
  std::uint32_t packet_flag;  // one_shot: as in RingCall
  std::uint64_t packets;      // one_shot: as in RingCall
  Range chunk;                // direct: this rank's own; one_shot: the whole buffer
  KernelTimeout timeout;
  const std::byte* input[kMostRanks];  // direct: of all ranks; one_shot: only [rank] is used
  std::byte* output[kMostRanks];
  std::byte* station[kMostRanks];
};

// Each function launches a kernel on the current device, and throws CudaError if the launch fails.
// All ranks must launch the same call. A kernel ends when its rank has its result and no peer needs
// the kernel any more, or when it has given up waiting (KernelReport).
void launch_ring(const RingCall& call, CUstream_st* stream);         // through the slots
void launch_packet_ring(const RingCall& call, CUstream_st* stream);  // not for broadcast or reduce
void launch_one_shot(const DirectCall& call, CUstream_st* stream);   // all_reduce by packets
void launch_direct(const DirectCall& call, CUstream_st* stream);     // all_reduce by peer access

// The addresses of the kernels above, for all types.
[[nodiscard]] std::vector<const void*> ring_kernels();
[[nodiscard]] std::vector<const void*> direct_kernels();

}  // namespace ringsmith::comm::cuda_ipc
