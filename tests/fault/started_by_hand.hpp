// The variables of a job that was started by hand: its ranks meet at a store that rank 0 runs.
#pragma once

#include <cstdlib>
#include <string>

namespace ringsmith::test {

inline void look_started_by_hand(int rank, int world, const std::string& port) {
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(world).c_str(), 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", port.c_str(), 1);
  setenv("RINGSMITH_SECRET", "sixteen letters!", 1);
}

}  // namespace ringsmith::test
