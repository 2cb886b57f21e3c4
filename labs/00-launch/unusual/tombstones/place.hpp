// One pass over all hosts, with an entry for each host in a map.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "labs/kit/nodes/nodes.hpp"
#include "meeting.hpp"

namespace lab00 {

struct Place {
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;
  int node = 0, nodes = 1;
};

inline Place place_of(const std::vector<std::string>& hosts, int rank) {
  struct Host {
    int number, ranks;
  };
  std::map<std::string, Host> all;
  std::vector<int> local;
  for (const std::string& name : hosts)
    local.push_back(all.try_emplace(name, Host{int(all.size()), 0}).first->second.ranks++);
  const Host& own = all.at(hosts[std::size_t(rank)]);
  return {rank,      int(hosts.size()), local[std::size_t(rank)],
          own.ranks, own.number,        int(all.size())};
}

inline Place join(kit::Folder& folder, const kit::Seat& seat, std::chrono::milliseconds patience) {
  return place_of(meet(folder, seat, kit::host_name(), patience), seat.rank);
}

}  // namespace lab00
