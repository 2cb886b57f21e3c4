// A network of 1 to 8 ranks inside one process, deliberately hostile, on a virtual clock.
//
//   hostile   up to `capacity` messages from one rank to another are buffered; with 0 a send waits
//             for its receive. The rank that runs next, and the delay of every message, are
//             drawn from the seed.
//   virtual   one rank runs at a time, until its next call; nothing depends on the machine's load,
//             and the same seed gives the same run. If no rank can continue, the deadlock is
//             reported immediately.
//   clock     a message of n bytes takes alpha + beta n, plus jitter; a rank sends one message at a
//             time and receives one at a time. At the end the clock shows the cost on a network.
#pragma once

#include <functional>
#include <memory>

#include "labs/kit/link.hpp"
#include "labs/kit/record.hpp"

namespace kit {

struct FabricOptions {
  int world = 1;
  int capacity = 0;        // messages
  std::uint64_t seed = 1;  // determines the order of ranks and the delays
  double alpha = 1;        // virtual seconds per message
  double beta = 0;         // virtual seconds per byte
  double jitter = 0;       // maximum extra delay of a message, drawn from the seed
};
// Reads world, capacity, seed, alpha, beta and jitter; missing values keep the defaults above.
FabricOptions fabric_options(const Request& in);

class Fabric {
 public:
  explicit Fabric(const FabricOptions& options);
  ~Fabric();
  // Runs body once for each rank. Throws kit::Hang if ranks wait for each other, kit::Misuse if
  // sizes do not match, and std::runtime_error naming the rank if body threw a std::exception;
  // body's other exceptions propagate unchanged.
  void run(const std::function<void(Link&)>& body);
  // sent_bytes, received_bytes, messages, calls: one number per rank. sources: for each rank, the
  // number of ranks from which it received messages. finish: the virtual time at which each rank
  // returned.
  void observe(Observation& out) const;
  // Sets the name of the operation that the rank begins, for reports, and counts its operations.
  void begin(int rank, const char* operation);

 private:
  friend class Link;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kit
