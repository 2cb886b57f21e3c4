// What travels on a TCP wire, after the greeting: writes into the receiver's mirror of the sender.
//
//     | offset 8 | size 4 | kind 4 | size bytes ... | offset | size | kind | ...
//
// A counter is a write of 8 bytes that becomes visible at once. Little endian, as both ends are:
// the greeting compares that.
#pragma once

#include <cstdint>

namespace ringsmith::comm::tcp {

enum class FrameKind : std::uint32_t {
  bytes = 0x72736231,
  counter = 0x72736331,
  // The only message of a rank that gives up before all are connected: because of rank `offset`,
  // so that the others name the same.
  farewell = 0x72736631
};

struct FrameHeader {
  std::uint64_t offset = 0;  // in the mirror, bytes
  std::uint32_t size = 0;    // bytes that follow
  FrameKind kind = FrameKind::bytes;
};
static_assert(sizeof(FrameHeader) == 16);

}  // namespace ringsmith::comm::tcp
