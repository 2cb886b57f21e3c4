// TCP sockets between a rank and those that it cannot share memory with.
//
// Each rank listens on one interface and says where, with a random word, in the bootstrap's
// exchange; of two ranks the higher connects. Its greeting carries the word, which only members of
// the job have heard: whoever does not know it is turned away.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/comm/bootstrap/bootstrap.hpp"
#include "runtime/comm/transport/descriptor.hpp"

namespace ringsmith::comm::tcp {

struct Link {
  Descriptor socket;    // non-blocking; invalid where there is none
  std::string address;  // of the peer's listener
};

// Connects to every rank r with remote[r]. Collective over all ranks of the bootstrap; remote is
// symmetric. `interface`: a name or an address; empty: an address that the other hosts can reach
// is looked for. TimeoutError naming the ranks that did not come, UsageError for an interface that
// is not there.
[[nodiscard]] std::vector<Link> connect_all(Bootstrap& bootstrap, const std::vector<bool>& remote,
                                            const std::string& interface, bool same_host,
                                            std::chrono::milliseconds timeout);

}  // namespace ringsmith::comm::tcp
