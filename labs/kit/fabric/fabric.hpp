// A network of 1 to 8 ranks inside one process, hostile by choice, on a virtual clock.
//
//   hostile   capacity messages are buffered between two ranks: 0 (a send waits for its receive),
//   1,
//             k. The rank that goes on next, and the delay of every message, are drawn from the
//             seed.
//   virtual   one rank runs at a time, until it blocks; nothing depends on the machine's load, and
//             the same seed gives the same run. When no rank can go on, that is a deadlock: it is
//             reported at once, not after a timeout.
//   clock     a message of n bytes takes alpha + beta n; a rank sends one at a time and receives
//   one
//             at a time. What a schedule would cost on a network can be read off at the end.
#pragma once

#include <functional>
#include <memory>

#include "labs/kit/link.hpp"
#include "labs/kit/record.hpp"

namespace kit {

struct FabricOptions {
  int world = 1;
  int capacity = 0;        // messages
  std::uint64_t seed = 1;  // of the order of ranks, and of delays
  double alpha = 1;        // virtual seconds a message
  double beta = 0;         // virtual seconds a byte
  double jitter = 0;       // a message is late by up to this, drawn from the seed
};
// world, capacity, seed, alpha, beta, jitter of a request; what is missing stays as above.
FabricOptions fabric_options(const Request& in);

class Fabric {
 public:
  explicit Fabric(const FabricOptions& options);
  ~Fabric();
  // Runs body once for each rank. Throws kit::Hang when they wait for each other, kit::Misuse for
  // sizes that do not match, and what a rank threw, with its number.
  void run(const std::function<void(Link&)>& body);
  // sent_bytes, received_bytes, messages, calls: one number a rank; sources: from how many ranks
  // each received something; finish: the virtual time at which each rank returned.
  void observe(Observation& out) const;
  // The name of the operation that rank has begun, for reports; counts its calls.
  void begin(int rank, const char* operation);

 private:
  friend class Link;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kit
