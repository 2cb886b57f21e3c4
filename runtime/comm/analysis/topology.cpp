#include "runtime/comm/analysis/topology.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/direct.hpp"
#include "runtime/comm/schedule/schedule.hpp"
#include "runtime/comm/schedule/select.hpp"

namespace ringsmith::comm {

std::vector<int> Topology::node_of(int world) const {
  require(world <= most_ranks(), std::to_string(world) + " ranks do not fit into " + name + ": " +
                                     std::to_string(nodes) + " nodes of " +
                                     std::to_string(gpus_per_node) + " GPUs");
  return nodes_of(world, gpus_per_node);
}

Network Topology::network(int senders_per_node) const {
  Link shared = nic;
  shared.beta *= std::max(1.0, static_cast<double>(senders_per_node) / nics_per_node);
  Network network;
  network.link = [within = gpu, shared, size = gpus_per_node](int from, int to) {
    return from / size == to / size ? within : shared;
  };
  network.gamma = gamma;
  network.overhead = overhead;
  return network;
}

double all_reduce_time(const Topology& topology, std::string_view algorithm, int world,
                       double bytes) {
  const std::vector<int> node_of = topology.node_of(world);
  const int per_node = topology.gpus_per_node;
  const auto count = static_cast<std::size_t>(bytes);
  if (world == 1) return 0;
  if (algorithm == "ring")
    return simulate_ring_all_reduce(world, count, 1, topology.network(1)).seconds;
  if (algorithm == "hierarchical" && world > per_node && world % per_node == 0) {
    // Within a node, then one ring for each of its GPUs, all at once, then within again.
    const Link shared = topology.network(per_node).link(0, per_node);
    const Network wire = Network::uniform(shared, topology.gamma);
    const Network inside = topology.network(0);
    const double before = simulate(direct_reduce_scatter(per_node, count), 1, inside).seconds;
    const double after = simulate(direct_all_gather(per_node, count), 1, inside).seconds;
    const auto part = count / static_cast<std::size_t>(per_node);
    const auto ring = simulate_ring_all_reduce(world / per_node, part, 1, wire);
    return before + ring.seconds + after - topology.overhead;
  }
  const Schedule schedule =
      make_schedule(Collective::all_reduce, algorithm, world, count, 1, 0, node_of);
  return simulate(schedule, 1, topology.network(senders_per_node(schedule, node_of))).seconds;
}

}  // namespace ringsmith::comm
