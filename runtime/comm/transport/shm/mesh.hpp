// A Unix socket between every two ranks that share memory. It carries the descriptors of their
// memory, and doorbells. It stays open so that a peer's death is noticed: the kernel closes the
// socket when the process at the other end dies. greeting.hpp describes which processes may get
// the memory.
#pragma once

#include <string>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/base/process.hpp"
#include "runtime/comm/types/bootstrap.hpp"
#include "runtime/comm/types/options.hpp"

namespace ringsmith::comm {

struct PeerLink {
  Descriptor socket;  // invalid for the rank itself
  Descriptor memory;  // the peer's memfd
  Word word{};        // the peer's word, which this rank sends to it
  pid_t pid = 0;
  std::string host;          // its name
  bool same_host = true;     // same machine and network namespace: Unix sockets reach it
  bool same_machine = true;  // same kernel: it shares this rank's CPUs
  int node = 0;              // the same for ranks that may share memory; rank 0's is 0
  bool remote = false;       // not reached through shared memory
  std::string cpus;          // the CPUs the peer may run on, as a string of 0 and 1
};

// Collective over all ranks. Connects the ranks of each node and exchanges their memory. Other
// ranks, or all if the transport is tcp or rdma, are marked as remote. Throws UsageError if the
// transport is shm and a rank is on another node (another host or network namespace, or a node made
// by options.ranks_per_node), or if settings or options that must be equal differ.
[[nodiscard]] std::vector<PeerLink> connect_mesh(Bootstrap& bootstrap, const Descriptor& memory,
                                                 const GroupOptions& options);

// True if the other end has gone. Never blocks.
[[nodiscard]] bool hung_up(const Descriptor& socket);

// How the ranks of a host meet (reception.cpp). If a rank dies before all are connected, the rank
// that notices tells the others before it leaves, so that all name the dead rank; tcp/connect.cpp
// does the same for TCP.
//
// Strangers may connect, too: processes of other users, or of this user without the word
// (greeting.hpp). Their messages are dropped, and no rank waits for them.

// Makes an abstract address: its name starts with a zero byte, and it has no file.
[[nodiscard]] socklen_t make_address(const std::string& name, sockaddr_un& address);

// Throws CommError with errno's text.
[[noreturn]] void fail_to_connect(const std::string& what);

// Fills in socket and memory of the links that are not remote. names: each rank's listener; unused
// for remote ranks. Throws PeerLost naming the rank that has gone or is silent.
void meet_on_host(Bootstrap& bootstrap, const Descriptor& memory, const Descriptor& listener,
                  const std::vector<std::string>& names, std::vector<PeerLink>& links,
                  Deadline deadline);

}  // namespace ringsmith::comm
