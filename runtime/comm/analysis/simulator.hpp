// The time a schedule takes, without running it: 1 to 16,384 ranks, links of any speed.
//
// Each rank has a clock, an outgoing and an incoming port. A message of n bytes over a link
// {alpha, beta}:
//
//     sender     |post|======== n beta ========|              its out port is busy meanwhile; its
//                     \ alpha                                 clock goes on at once
//     receiver         \________|======== n beta ========|#n gamma#|     gamma if it is reduced
//                               in port, one message at a time, in the order of its steps
//
// A post waits for the step before it, for the out port, and for credit: with k slots, until the
// receiver is done with the message k earlier on the same connection. An empty message costs
// nothing. This is the alpha-beta-gamma model (Thakur, Rabenseifner, Gropp 2005) with ports.
#pragma once

#include <functional>

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

struct Link {
  double alpha = 0;  // seconds a message
  double beta = 0;   // seconds a byte
};

struct Network {
  std::function<Link(int from, int to)> link;
  double gamma = 0;     // seconds for each byte reduced
  double overhead = 0;  // seconds for the operation as a whole
  int slots = 8;        // messages a connection holds, >= 1

  // All links alike.
  static Network uniform(Link link, double gamma = 0, double overhead = 0);
};

// When a rank did what, in seconds from the start of the operation.
struct Event {
  int rank = 0, step = 0;
  double posted = -1;    // -1: this step sends nothing
  double began = -1;     // began to wait for its message; -1: this step receives nothing
  double arrived = -1;   // the message was in
  double finished = -1;  // and reduced
};

struct Simulation {
  double seconds = 0;            // until the slowest rank has finished, overhead included
  std::vector<double> finished;  // [rank], without overhead
  std::uint64_t messages = 0;    // not counting empty ones
  double bytes = 0;              // sent by all ranks
  std::vector<Event> events;     // if asked for
};

// Any schedule that the checker accepts.
[[nodiscard]] Simulation simulate(const Schedule& schedule, std::size_t element_size,
                                  const Network& network, bool keep_events = false);

// The ring all-reduce of ring.hpp, without writing down its world * (2 world - 2) steps: all ranks
// are at the same step of the same shape, so one array sweep per step does them all. The same
// result as simulate(), bit for bit.
[[nodiscard]] Simulation simulate_ring_all_reduce(int world, std::size_t count,
                                                  std::size_t element_size, const Network& network);

}  // namespace ringsmith::comm
