#include "runtime/comm/transport/network_transport.hpp"

#include <array>
#include <cstddef>
#include <sys/socket.h>

namespace ringsmith::comm {

void Doorbells::watch(std::vector<pollfd>& entries) const {
  for (const int socket : sockets_) entries.push_back({socket, POLLIN, 0});
}

void Doorbells::silence(const std::vector<pollfd>& entries) {
  std::array<std::byte, 64> rings;
  const std::size_t first = entries.size() - sockets_.size();
  for (std::size_t i = 0; i < sockets_.size(); ++i) {
    if (entries[first + i].revents == 0) continue;
    ssize_t got = 0;
    do got = recv(sockets_[i], rings.data(), rings.size(), MSG_DONTWAIT);
    while (got == ssize_t{rings.size()});
    if (got == 0) sockets_[i] = -1;  // or poll() would return at once from now on
  }
}

}  // namespace ringsmith::comm
