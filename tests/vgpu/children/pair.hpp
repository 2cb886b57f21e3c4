// Two processes that share device memory, and a wire between them. Neither has used CUDA before the
// fork.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sys/socket.h>
#include <sys/wait.h>
#include <type_traits>
#include <unistd.h>

#include "kernels/cuda/launch.hpp"

namespace ringsmith::testing {

class Wire {
 public:
  explicit Wire(int socket) : socket_(socket) {}
  template <class T>
  void send(const T& value) const {
    static_assert(std::is_trivially_copyable_v<T>);
    if (::send(socket_, &value, sizeof value, MSG_NOSIGNAL) != sizeof value) lost();
  }
  template <class T>
  [[nodiscard]] T receive() const {
    T value{};
    if (::recv(socket_, &value, sizeof value, MSG_WAITALL) != sizeof value) lost();
    return value;
  }

 private:
  [[noreturn]] static void lost() {
    std::fprintf(stderr, "the other process has gone\n");
    std::_Exit(3);
  }
  int socket_;
};

// Runs both; the exporter is the parent, and gets the importer's pid. Returns the larger status.
inline int run_pair(const char* name, const std::function<void(Wire, pid_t)>& exporter,
                    const std::function<void(Wire)>& importer) {
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return 3;
  const pid_t child = ::fork();
  ::close(sockets[child == 0 ? 0 : 1]);
  const int code = run_main(name, [&] {
    if (child == 0)
      importer(Wire(sockets[1]));
    else
      exporter(Wire(sockets[0]), child);
    return 0;
  });
  if (child == 0) std::_Exit(code);
  ::close(sockets[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  const int other = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return code > other ? code : other;
}

}  // namespace ringsmith::testing
