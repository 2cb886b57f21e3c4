// Support for a process of another user that attacks a job's sockets, which it finds in
// /proc/net/unix.
#pragma once

#include <cstring>
#include <fstream>
#include <grp.h>
#include <set>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace ringsmith::testing {

// Makes this process run as nobody, permanently. Fails unless it runs as root.
inline bool become_nobody() {
  constexpr int kNobody = 65534;
  return ::setgroups(0, nullptr) == 0 && ::setgid(kNobody) == 0 && ::setuid(kNobody) == 0;
}

inline std::set<std::string> sockets_named(const std::string& part) {
  std::set<std::string> names;
  std::ifstream table("/proc/net/unix");
  for (std::string line; std::getline(table, line);)
    if (const std::size_t at = line.rfind(" @");
        at != std::string::npos && line.find(part, at) != std::string::npos)
      names.insert(line.substr(at + 2));
  return names;
}

// Returns a socket connected or bound to the name; -1 and errno on failure. Never waits.
inline int abstract_socket(const std::string& name,
                           int (*bind_or_connect)(int, const sockaddr*, socklen_t)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const int s = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (s >= 0 && bind_or_connect(s, reinterpret_cast<sockaddr*>(&address), length) == 0) return s;
  const int error = errno;
  if (s >= 0) ::close(s);
  errno = error;
  return -1;
}

}  // namespace ringsmith::testing
