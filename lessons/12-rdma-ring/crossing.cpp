// crossing: the elements that an all-reduce sends between nodes, counted in the schedules that
// the runtime runs. The array has 1024 elements per rank, so that all divisions are exact.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "runtime/comm/schedule/direct.hpp"
#include "runtime/comm/schedule/hierarchical.hpp"
#include "runtime/comm/schedule/ring.hpp"

using namespace ringsmith::comm;

void count(const Schedule& schedule, int ranks_per_node) {
  std::size_t crossing = 0, messages = 0, most = 0;
  for (std::size_t rank = 0; rank < schedule.steps.size(); ++rank) {
    std::size_t mine = 0;
    for (const Step& step : schedule.steps[rank]) {
      if (step.send_peer == kNobody) continue;
      if (step.send_peer / ranks_per_node == static_cast<int>(rank) / ranks_per_node) continue;
      for (int c = 0; c < step.chunks; ++c)
        crossing += schedule.chunks[static_cast<std::size_t>(step.send_chunk + c)].count;
      ++messages;
      ++mine;
    }
    most = std::max(most, mine);
  }
  std::printf("  %-13s %8.2f arrays cross in %5zu messages; one rank sends at most %3zu of them\n",
              std::string(name_of(schedule.algorithm)).c_str(),
              static_cast<double>(crossing) / static_cast<double>(schedule.count), messages, most);
}

int main() {
  struct Shape {
    int nodes, ranks;
  };
  for (const Shape& shape : {Shape{2, 4}, Shape{4, 8}, Shape{8, 1}}) {
    const int world = shape.nodes * shape.ranks;
    const std::size_t elements = 1024 * static_cast<std::size_t>(world);
    std::vector<int> node_of;
    for (int rank = 0; rank < world; ++rank) node_of.push_back(rank / shape.ranks);
    std::printf("%d nodes of %d\n", shape.nodes, shape.ranks);
    count(ring_all_reduce(world, elements), shape.ranks);
    count(direct_schedule(Collective::all_reduce, world, elements), shape.ranks);
    count(hierarchical_all_reduce(world, elements, node_of), shape.ranks);
  }
}
