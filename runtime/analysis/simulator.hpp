// Computes the time that a schedule takes, without running it, for any number of ranks and any link
// speeds.
//
// Each rank has a clock, an outgoing port and an incoming port. A message of n bytes over a link
// {alpha, beta}:
//
//     sender     |post|======== n beta ========|              the out port is busy; the sender's
//                     \ alpha                                 clock continues immediately
//     receiver         \________|======== n beta ========|#n gamma#|     gamma if it is reduced
//                               in port, one message at a time, in the order of its steps
//
// A post waits for the previous step, for the outgoing port, and for a credit: with k slots, the
// receiver must have finished with the message that was sent k messages earlier on the same
// connection. An empty message costs nothing. This is the alpha-beta-gamma model (Thakur,
// Rabenseifner, Gropp 2005) with ports.
#pragma once

#include <functional>
#include <string>

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

struct Link {
  double alpha = 0;  // seconds per message
  double beta = 0;   // seconds per byte
};

struct Network {
  std::function<Link(int from, int to)> link;
  double gamma = 0;     // seconds per byte reduced
  double overhead = 0;  // seconds per operation
  int slots = 8;        // messages a connection holds, >= 1

  // Returns a network in which all links are equal.
  static Network uniform(Link link, double gamma = 0, double overhead = 0);
};

// Times of one step, in seconds from the start of the operation.
struct StepEvents {
  int rank = 0, step = 0;
  double posted = -1;    // -1: this step sends nothing
  double began = -1;     // began to wait for its message; -1: this step receives nothing
  double arrived = -1;   // the message had arrived
  double finished = -1;  // the message had been reduced or copied
};

struct Simulation {
  double seconds = 0;              // until the slowest rank has finished, overhead included
  std::vector<double> finished;    // [rank], without overhead
  std::uint64_t messages = 0;      // not counting empty ones
  double bytes = 0;                // sent by all ranks
  std::vector<StepEvents> events;  // if requested
};

// Simulates any schedule that the checker accepts. Throws UsageError if it does not finish with
// network.slots slots.
[[nodiscard]] Simulation simulate(const Schedule& schedule, std::size_t element_size,
                                  const Network& network, bool keep_events = false);

// Simulates the ring all-reduce of ring.hpp without building its world * (2 world - 2) steps: one
// sweep over arrays handles a step of all ranks. Bit-identical to simulate().
[[nodiscard]] Simulation simulate_ring_all_reduce(int world, std::size_t count,
                                                  std::size_t element_size, const Network& network);

// A hypothetical cluster for the simulator: nodes, their GPUs, and the links between them.
//
//     node 0                         node 1
//     [GPU GPU GPU GPU]              [GPU GPU GPU GPU]        gpu link: between GPUs of a node
//      `---' NIC `---' NIC ---------- NIC `---' NIC `---'     nic link: of one NIC, node to node
//
// Rank r is GPU r modulo gpus_per_node of node r / gpus_per_node. The network between the nodes is
// non-blocking: a NIC reaches any other NIC at its full rate. If a schedule lets more ranks of a
// node send to other nodes than the node has NICs, each of these ranks gets an equal share of the
// rate. The flat ring, with one rank at the edge of each node, uses only one NIC per node.
struct Topology {
  std::string name;
  std::string source;
  int nodes = 1;  // available; a world may use fewer
  int gpus_per_node = 1;
  int nics_per_node = 1;
  Link gpu, nic;
  double gamma = 0;     // seconds per byte reduced
  double overhead = 0;  // seconds per operation
  double flops = 1e12;  // per second and GPU, as achieved in training

  [[nodiscard]] int most_ranks() const { return nodes * gpus_per_node; }
  // Returns the node of each rank. Nodes are filled one after the other. Throws UsageError if world
  // > most_ranks().
  [[nodiscard]] std::vector<int> node_of(int world) const;
  // Returns the links for a schedule in which senders_per_node ranks per node send to other nodes.
  [[nodiscard]] Network network(int senders_per_node) const;
};

// Returns the seconds that an all-reduce of `bytes` bytes takes with an algorithm of select.hpp.
// Ring and, on full nodes, hierarchical are simulated without building all their steps. For the
// ring the result is bit-identical; for hierarchical it is the same up to rounding if the bytes
// divide evenly. Throws UsageError if the world does not fit the topology.
[[nodiscard]] double all_reduce_time(const Topology& topology, Algorithm algorithm, int world,
                                     double bytes);

}  // namespace ringsmith::comm
