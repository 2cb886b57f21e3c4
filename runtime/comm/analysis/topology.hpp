// A cluster on paper: nodes, the GPUs in them, and the links between, for the simulator.
//
//     node 0                         node 1
//     [GPU GPU GPU GPU]              [GPU GPU GPU GPU]        gpu link: between GPUs of a node
//      `---' NIC `---' NIC ---------- NIC `---' NIC `---'     nic link: of one NIC, node to node
//
// Rank r is GPU r modulo gpus_per_node of node r / gpus_per_node. The network between the nodes is
// taken as without blocking: a NIC meets any other at its full rate. Several ranks that send
// through one NIC share it: where a schedule lets more ranks of a node send to other nodes than it
// has NICs, each gets its share of the rate. (An algorithm with one rank at the edge of each node,
// as the flat ring, uses one NIC of a node, however many there are.)
#pragma once

#include <string>

#include "runtime/comm/analysis/simulator.hpp"

namespace ringsmith::comm {

struct Topology {
  std::string name;
  std::string source;  // where the numbers are from
  int nodes = 1;       // at most
  int gpus_per_node = 1;
  int nics_per_node = 1;
  Link gpu, nic;
  double gamma = 0;     // seconds a byte reduced
  double overhead = 0;  // seconds an operation
  double flops = 1e12;  // of one GPU, as training reaches them; a second

  [[nodiscard]] int most_ranks() const { return nodes * gpus_per_node; }
  // Of a world that fills one node after the other. UsageError if it is more than most_ranks().
  [[nodiscard]] std::vector<int> node_of(int world) const;
  // The links as a schedule sees them in which so many ranks of a node send to other nodes.
  [[nodiscard]] Network network(int senders_per_node) const;
};

// Seconds of an all-reduce of so many bytes: "ring", "hierarchical", or any all-reduce of
// select.hpp. The two named ones are simulated without writing all their steps down, the same to
// the bit for the ring, and to rounding for hierarchical where the bytes divide evenly: all nodes
// do the same. UsageError if the world does not fit the topology.
[[nodiscard]] double all_reduce_time(const Topology& topology, std::string_view algorithm,
                                     int world, double bytes);

}  // namespace ringsmith::comm
