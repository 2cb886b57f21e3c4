// Lanes of a warp that meet: at a shuffle, a vote or __syncwarp.
//
// Each lane brings a request; the last one that the mask names works out everybody's answer. Lanes
// that have left the kernel, and those beyond the end of the block, are not waited for.
#pragma once

#include <array>
#include <cstdint>

namespace vgpu {

enum class WarpOp : std::uint8_t { shuffle, vote, sync };

struct LaneRequest {
  std::uint64_t value = 0;   // shuffle: what others may read; vote: the predicate
  unsigned from = 0;         // shuffle: whose value it wants; vote: gets the lanes that voted
  std::uint64_t answer = 0;  // shuffle: that value; vote: the ballot
};

// Those who wait for each other: all with one mask.
struct Meeting {
  unsigned mask = 0;
  unsigned arrived = 0;  // lanes
  WarpOp op{};
  unsigned generation = 0;
  char order[2] = {0, 0};  // __syncwarp, for ThreadSanitizer
};

struct Warp {
  unsigned present = 0;                // lanes that have not left the kernel
  std::array<Meeting, 32> meetings{};  // free where nobody has arrived
  unsigned open = 0;                   // meetings[0 .. open) have been used
};

// Fills in the answers of the lanes that arrived; request(lane) is their LaneRequest.
template <class Request>
void answer(const Meeting& meeting, Request request) {
  std::uint64_t ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if ((meeting.arrived >> lane & 1U) != 0 && request(lane).value != 0) ballot |= 1ULL << lane;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((meeting.arrived >> lane & 1U) == 0) continue;
    LaneRequest& r = request(lane);
    if (meeting.op == WarpOp::vote) {
      r.answer = ballot;
      r.from = meeting.arrived;
    }
    if (meeting.op == WarpOp::shuffle)
      r.answer = (meeting.arrived >> r.from & 1U) != 0 ? request(r.from).value : ~0ULL;
  }
}

}  // namespace vgpu
