// What the host and the kernels of engine B tell each other: a call, with which the host starts
// them, and the report that they leave when a wait in it does not end.
//
// Calls are plain data, copied into the kernel's arguments. Pointers are device pointers of the
// rank that launches: its own memory, or a peer's as this process sees it.
#pragma once

#include <cstdint>

#include "kernels/reduce.hpp"
#include "runtime/comm/device/station.hpp"
#include "runtime/comm/types/collective.hpp"

struct CUstream_st;

namespace ringsmith::comm::cuda_ipc {

enum class Awaited : std::uint32_t {
  none,
  tail,     // a message from peer
  head,     // that peer takes a message out of a slot: credit
  packet,   // a packet from peer
  arrival,  // that peer's block comes to a meeting
};

// What a kernel leaves behind when a wait does not end: who stood where, waiting for what. It lies
// in pinned host memory that the device writes and the host reads; the host in turn tells the
// device's blocks to stop by setting `stop`.
//
//     block: poll, poll, ... out of time, or stop set   --> fills the record, sets `written`
//                                                           and `stop`, ends
//     other blocks:                                             see stop, end
//     host:                                                     sees written, reads, throws
struct KernelReport {
  std::uint32_t stop;     // kernels are to end: set by the host, or by the block that reports
  std::uint32_t written;  // 1: all that follows is there
  Awaited awaited;
  std::int32_t rank, peer;
  std::uint32_t block;
  std::uint64_t operation;   // its number in the group
  std::int64_t step;         // of the schedule
  std::uint64_t have, want;  // of the counter, or the packet's flag
};

// For the host, while the kernel may still run. After a yes, the whole record is there to be read.
inline bool has_written(KernelReport& report) {
  return SystemAtomic<std::uint32_t>(report.written).load(order_of(End::report_acquire)) != 0;
}

// How long a kernel waits for one thing, by the device's clock, and where it complains. It is the
// last resort of a kernel whose host has stopped to watch it: a host that asks the driver anything
// may wait there for the kernel itself.
struct Patience {
  KernelReport* report = nullptr;
  std::uint64_t limit = ~std::uint64_t{0};  // of polls, for tests: no clock decides what they see
  std::uint64_t operation = 0;              // its number in the group, for the report
  std::uint64_t nanoseconds = ~std::uint64_t{0};
};

using kernels::Arithmetic;  // out = own op message

// What own is multiplied by where Arithmetic::scale does not say it: an integer, which wraps as
// they do; or an element in memory that the device reads, looked up when the kernel runs. Engine
// b's slots know it, if Arithmetic::scaled is set.
struct Factor {
  std::uint64_t integer = 1;
  const std::byte* scalar = nullptr;
};

// A chunk of the work buffer, in elements.
struct Range {
  std::uint64_t begin, count;
};

// Ranks form a ring and are counted in the direction of the data: position p sends to p + 1.
// chunks[q] belongs to position q. In a broadcast position 0 is the root, in a reduce the last one
// is, and chunk 0 is everything.
struct RingCall {
  Collective collective;
  DType dtype;
  bool other_sign;  // i8, u32, u64, which have no DType: integers of the other sign than dtype's
  Arithmetic arithmetic;
  Factor factor;
  int world, position;
  int rank, previous_rank, next_rank;  // for reports
  int ring;                            // of Station::channels
  Shape shape;
  int blocks;  // to launch, at most shape.channels
  const std::byte* input;
  std::byte* output;
  std::uint64_t input_begin, output_begin;  // element of the work buffer with which they begin
  std::byte *mine, *previous, *next;        // stations
  std::uint32_t packet_flag;                // the number of this call among those that use packets
  std::uint64_t packet_lines;               // lines set aside for one message
  Patience patience;
  Range chunks[kMostRanks];
};

// Every rank with every other one.
struct DirectCall {
  DType dtype;
  Arithmetic arithmetic;
  int world, rank;
  Shape shape;
  int blocks;                 // to launch, at most shape.channels
  std::uint64_t meeting;      // direct: number of the first of its two meetings
  std::uint32_t packet_flag;  // one_shot: as in RingCall
  Range chunk;                // direct: this rank's own; one_shot: everything
  Patience patience;
  const std::byte* input[kMostRanks];  // direct: of all ranks; one_shot: only [rank] is used
  std::byte* output[kMostRanks];
  std::byte* station[kMostRanks];
};

// On the current device. All ranks must launch the same call; a kernel ends when its rank has its
// result and nobody needs this rank any more, or leaves a KernelReport. CudaError if the launch
// fails.
void launch_ring(const RingCall& call, CUstream_st* stream);         // through the slots
void launch_packet_ring(const RingCall& call, CUstream_st* stream);  // by packets; no broadcast
void launch_one_shot(const DirectCall& call, CUstream_st* stream);   // all_reduce by packets
void launch_direct(const DirectCall& call, CUstream_st* stream);     // all_reduce by peer access

}  // namespace ringsmith::comm::cuda_ipc
