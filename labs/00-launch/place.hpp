// Lab 00, part 3: from the host of each rank to the place of each rank.
//
//     rank         0   1   2   3   4
//     host         b   a   b   b   a         as the meeting returned them
//     node         0   1   0   0   1         hosts, numbered in the order in which they appear
//     local rank   0   0   1   2   1         index among the ranks of the same host
//     local world  3   2   3   3   2
//
// Every rank computes this from the same list, so all ranks agree without another message.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "labs/kit/nodes/nodes.hpp"
#include "labs/kit/todo.hpp"
#include "meeting.hpp"

namespace lab00 {

struct Place {
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;  // among the ranks of the same host
  int node = 0, nodes = 1;              // number of the rank's host; number of hosts
};

// Task 4. hosts[r] is the name of the host of rank r. The names and their order are arbitrary.
inline Place place_of(const std::vector<std::string>& hosts, int rank) {
#ifdef SOLUTION
  const std::string& own = hosts.at(std::size_t(rank));
  std::vector<std::string> seen;  // hosts in the order of their lowest ranks
  for (const std::string& host : hosts)
    if (std::find(seen.begin(), seen.end(), host) == seen.end()) seen.push_back(host);
  Place place;
  place.rank = rank;
  place.world = int(hosts.size());
  place.local_rank = int(std::count(hosts.begin(), hosts.begin() + rank, own));
  place.local_world = int(std::count(hosts.begin(), hosts.end(), own));
  place.node = int(std::find(seen.begin(), seen.end(), own) - seen.begin());
  place.nodes = int(seen.size());
  return place;
#else
  (void)hosts, (void)rank;
  kit::todo("task 4, place_of");
#endif
}

// Given. Every rank calls this first.
inline Place join(kit::Folder& folder, const kit::Seat& seat, std::chrono::milliseconds patience) {
  return place_of(meet(folder, seat, kit::host_name(), patience), seat.rank);
}

}  // namespace lab00
