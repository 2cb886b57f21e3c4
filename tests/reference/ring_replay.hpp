// Runs a ring schedule on all ranks in one process, without wires.
#pragma once

#include <span>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::reference {

// work[rank] is the rank's buffer of schedule.count floats. All ranks run in lockstep: in each
// step, a rank receives the data that its peer sends in the same step. Throws if the schedule does
// not allow this.
inline void replay(const comm::Schedule& schedule, std::span<std::vector<float>> work) {
  if (schedule.steps.empty()) return;
  for (std::size_t step = 0; step < schedule.steps[0].size(); ++step) {
    const std::vector<std::vector<float>> before(work.begin(), work.end());
    for (std::size_t rank = 0; rank < work.size(); ++rank) {
      const comm::Step& s = schedule.steps[rank][step];
      if (!s.receives()) continue;
      const comm::Step& peer = schedule.steps[static_cast<std::size_t>(s.recv_peer)][step];
      require(peer.send_peer == static_cast<int>(rank) && peer.send_chunk == s.recv_chunk,
              "replay: the schedule is not in lockstep");
      const comm::Chunk chunk = schedule.chunks[static_cast<std::size_t>(s.recv_chunk)];
      const auto& sent = before[static_cast<std::size_t>(s.recv_peer)];
      for (std::size_t i = chunk.offset; i < chunk.offset + chunk.count; ++i)
        work[rank][i] = s.action == comm::Action::copy ? sent[i] : sent[i] + work[rank][i];
    }
  }
}

}  // namespace ringsmith::reference
