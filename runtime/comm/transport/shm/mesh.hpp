// A Unix socket between every two ranks of a host. It carries the descriptor of each rank's shared
// memory once, and then nothing: it stays open because the kernel closes it when the process at its
// other end dies, which is how a dead peer is noticed, whatever killed it. Who may have that
// memory: greeting.hpp.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "runtime/base/process.hpp"
#include "runtime/comm/bootstrap/bootstrap.hpp"
#include "runtime/comm/transport/word.hpp"

namespace ringsmith::comm {

struct PeerLink {
  Descriptor socket;  // invalid for the rank itself
  Descriptor memory;  // the peer's memfd
  Word word{};        // what the peer is to be shown; the rank's own is what others show it
  pid_t pid = 0;
  std::string host;          // its name
  bool same_host = true;     // one network namespace of one machine: Unix sockets reach it
  bool same_machine = true;  // one kernel: it shares our cores
  int node = 0;              // the same for ranks that may share memory; 0 is rank 0's
  bool remote = false;       // not to be reached by shared memory
  std::string cpus;          // CPUs the peer may run on, as a string of 0 and 1
};

// Connects the ranks of one host and exchanges their memory. Collective over all ranks; those that
// shared memory does not reach, or shall not, are marked as remote. UsageError if the transport is
// shm and a rank is on another node (another host, another network namespace, or by
// options.ranks_per_node), or if ranks were given different transports or nodes.
[[nodiscard]] std::vector<PeerLink> connect_mesh(Bootstrap& bootstrap, const Descriptor& memory,
                                                 const GroupOptions& options);

// Do Unix sockets reach from each of the ranks to all others? Collective.
[[nodiscard]] bool on_one_host(Bootstrap& bootstrap);

// Has the other end gone? Never blocks.
[[nodiscard]] bool hung_up(const Descriptor& socket);

}  // namespace ringsmith::comm
