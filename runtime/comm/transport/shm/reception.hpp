// The ranks of a host greet each other on Unix sockets, in whatever order they come, and hand each
// other their memory. If one dies meanwhile, who finds out tells the others before it leaves, so
// that all name the same rank; transport/tcp/connect.cpp has the same for TCP.
//
// Strangers may call, too: processes of other users, which the kernel tells apart, and others of
// our own, which do not know the word (greeting.hpp). Whatever they say or do not say is dropped,
// and nobody waits for it; a rank that does not get through for them calls again.
#pragma once

#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/comm/transport/shm/mesh.hpp"
#include "runtime/comm/types/bootstrap.hpp"

namespace ringsmith::comm {

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
