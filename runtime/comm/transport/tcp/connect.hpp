// TCP sockets between a rank and the ranks with which it cannot share memory.
//
// Each rank listens on one interface and announces its address and a random word through the
// bootstrap. Of two ranks the higher one connects. Its greeting carries the listener's word, which
// only members of the job know; a connection without it is closed. The rest is plain TCP, neither
// encrypted nor authenticated: anyone who can read or alter packets between the hosts can read or
// alter the data.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/base/process.hpp"
#include "runtime/comm/types/bootstrap.hpp"

namespace ringsmith::comm::tcp {

struct PeerSockets {
  std::vector<Descriptor> sockets;  // non-blocking; none to ranks that share memory
  std::string address;              // address of the peer's listener
  [[nodiscard]] const Descriptor& socket() const { return sockets.front(); }
};

// How the sockets are made. Must be the same on every rank.
struct Wiring {
  std::string interface;  // a name or an address; empty: an interface that reaches the others
  int sockets = 1;        // number of sockets between two ranks
  std::chrono::milliseconds timeout{30'000};  // to connect; silences may last 10 s longer
};

// Connects to every rank r with remote[r]. Collective over all ranks of the bootstrap; remote is
// symmetric. Throws TimeoutError naming the ranks that did not connect, PeerLost naming one that is
// gone, CommError naming one that this rank cannot reach, and UsageError if the interface does not
// exist.
[[nodiscard]] std::vector<PeerSockets> connect_all(Bootstrap& bootstrap,
                                                   const std::vector<bool>& remote,
                                                   const Wiring& wiring, bool same_host);

}  // namespace ringsmith::comm::tcp
