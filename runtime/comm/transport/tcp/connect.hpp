// TCP sockets between a rank and those that it cannot share memory with.
//
// Each rank listens on one interface and says where, with a random word, in the bootstrap's
// exchange; of two ranks the higher connects. Its greeting carries the word, which only members of
// the job have heard: whoever does not know it is turned away. What follows is plain TCP, neither
// encrypted nor authenticated: who can read or alter packets between the hosts can do so with data.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/base/process.hpp"
#include "runtime/comm/types/bootstrap.hpp"

namespace ringsmith::comm::tcp {

struct Link {
  std::vector<Descriptor> sockets;  // non-blocking; none to ranks that are not remote
  std::string address;              // of the peer's listener
  [[nodiscard]] const Descriptor& socket() const { return sockets.front(); }
};

// How the sockets are made, the same on every rank.
struct Wiring {
  std::string interface;  // a name or an address; empty: one that reaches the others
  int sockets = 1;        // between two ranks
  std::chrono::milliseconds timeout{30'000};  // to connect, and that a silent network is endured
};

// Connects to every rank r with remote[r]. Collective over all ranks of the bootstrap; remote is
// symmetric. TimeoutError naming the ranks that did not come, UsageError for an interface that is
// not there.
[[nodiscard]] std::vector<Link> connect_all(Bootstrap& bootstrap, const std::vector<bool>& remote,
                                            const Wiring& wiring, bool same_host);

}  // namespace ringsmith::comm::tcp
