// A Unix socket between every two ranks of a host. It carries the descriptor of each rank's shared
// memory once, and then nothing: it stays open because the kernel closes it when the process at its
// other end dies, which is how a dead peer is noticed, whatever killed it. Who may have that
// memory: greeting.hpp.
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
// options.ranks_per_node), or if the ranks' settings differ: GroupOptions::settings, and the
// options of the group that must be equal.
[[nodiscard]] std::vector<PeerLink> connect_mesh(Bootstrap& bootstrap, const Descriptor& memory,
                                                 const GroupOptions& options);

// Do Unix sockets reach from each of the ranks to all others? Collective.
[[nodiscard]] bool on_one_host(Bootstrap& bootstrap);

// Has the other end gone? Never blocks.
[[nodiscard]] bool hung_up(const Descriptor& socket);

// The ranks of a host greet each other on Unix sockets, in whatever order they come, and hand each
// other their memory. If one dies meanwhile, who finds out tells the others before it leaves, so
// that all name the same rank; transport/tcp/connect.cpp has the same for TCP.
//
// Strangers may call, too: processes of other users, which the kernel tells apart, and others of
// our own, which do not know the word (greeting.hpp). Whatever they say or do not say is dropped,
// and nobody waits for it; a rank that does not get through for them calls again.

// The abstract namespace: the address is a name that starts with a zero byte and has no file.
[[nodiscard]] socklen_t make_address(const std::string& name, sockaddr_un& address);

// CommError with errno's text.
[[noreturn]] void fail_to_connect(const std::string& what);

// Fills socket and memory of the links that are not remote, whose words are known. names: of all
// ranks' listeners; those of remote ranks are not used. PeerLost naming the rank that has gone or
// is silent.
void meet_on_host(Bootstrap& bootstrap, const Descriptor& memory, const Descriptor& listener,
                  const std::vector<std::string>& names, std::vector<PeerLink>& links,
                  Deadline deadline);

}  // namespace ringsmith::comm
