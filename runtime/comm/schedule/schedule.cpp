#include "runtime/comm/schedule/schedule.hpp"

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

void check_world(int world, int root) {
  require(world >= 1, "world " + std::to_string(world) + ": a schedule needs at least one rank");
  require(root >= 0 && root < world, "root " + std::to_string(root) +
                                         " is not a rank of a world of " + std::to_string(world) +
                                         ": choose 0 to " + std::to_string(world - 1));
}

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::all_gather:
      return "all_gather";
    case Collective::broadcast:
      return "broadcast";
    case Collective::reduce:
      return "reduce";
    case Collective::gather:
      return "gather";
    case Collective::scatter:
      return "scatter";
    case Collective::all_to_all:
      return "all_to_all";
  }
  return "?";
}

std::vector<Chunk> split_evenly(std::size_t count, int parts) {
  const auto n = static_cast<std::size_t>(parts);
  std::vector<Chunk> chunks(n);
  std::size_t offset = 0;
  for (std::size_t i = 0; i < n; ++i) {
    chunks[i] = {offset, count / n + (i < count % n ? 1 : 0)};
    offset += chunks[i].count;
  }
  return chunks;
}

}  // namespace ringsmith::comm
