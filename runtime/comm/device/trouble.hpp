// What a kernel of engine B leaves behind when a wait does not end: who stood where, waiting for
// what. It lies in pinned host memory that the device writes and the host reads; the host in turn
// tells the device's blocks to stop by setting `stop`.
//
//     block: poll, poll, ... limit reached, or stop set --> fills the record, sets `written`
//                                                           and `stop`, ends
//     other blocks:                                             see stop, end
//     host:                                                     sees written, reads, throws
#pragma once

#include <cstdint>

#include "runtime/comm/device/ordering.hpp"

namespace ringsmith::comm::cuda_ipc {

enum class Awaited : std::uint32_t {
  none,
  tail,     // a message from peer
  head,     // that peer takes a message out of a slot: credit
  packet,   // a packet from peer
  arrival,  // that peer's block comes to a meeting
};

struct Trouble {
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
inline bool has_written(Trouble& trouble) {
  return SystemAtomic<std::uint32_t>(trouble.written).load(order_of(End::report_acquire)) != 0;
}

}  // namespace ringsmith::comm::cuda_ipc
