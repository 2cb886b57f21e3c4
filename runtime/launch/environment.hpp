// The variables that a rank is started with. torchrun's names where there are such, so that what
// reads them elsewhere reads them here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringsmith::launch {

// A rank's place among all, as its launcher knows it.
struct RankPlace {
  int rank = 0, world = 1;              // of all ranks
  int local_rank = 0, local_world = 1;  // of those on this node
  int node = 0, nodes = 1;
};

// How its ranks find the job's store.
struct StorePlace {
  std::string address;
  std::uint16_t port = 0;
  std::string secret;
  std::string door = {};  // describe_door() of what the ranks inherit; "": none
};

// `inherited` (NAME=value each), without what other launchers left in it, and with
//   RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE MASTER_ADDR MASTER_PORT
//   RINGSMITH_STORE RINGSMITH_SECRET, RINGSMITH_STORE_FD if there is a door
//   OMP_NUM_THREADS=1 if it was not set and several ranks share the node
[[nodiscard]] std::vector<std::string> rank_environment(const std::vector<std::string>& inherited,
                                                        const RankPlace& place,
                                                        const StorePlace& store);

}  // namespace ringsmith::launch
