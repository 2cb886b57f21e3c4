// Two processes with a real RDMA device between them, and the student's endpoint in each:
//
//     g++ -std=c++20 -I. -DENDPOINT='"work/11-verbs/endpoint.hpp"' labs/11-verbs/real.cpp
//         labs/kit/todo.cpp -libverbs -o real && ./real rxe0 [GID INDEX]
//
// The judge does not run this, because it has no device.
#include ENDPOINT

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr std::size_t kPuts = 5000, kBytes = 256;

template <class T>
T swap_over(int socket, const T& mine) {
  T theirs{};
  if (write(socket, &mine, sizeof mine) != ssize_t(sizeof mine) ||
      recv(socket, &theirs, sizeof theirs, MSG_WAITALL) != ssize_t(sizeof theirs))
    throw std::runtime_error("the other process has exited");
  return theirs;
}

int one_end(const char* device, int gid_index, int socket, bool first) {
  std::vector<std::byte> inbox(kPuts * kBytes), outbox(kPuts * kBytes);
  for (std::size_t i = 0; i < outbox.size(); ++i) outbox[i] = std::byte(i * 7 + first);
  lab11::Endpoint end(device, inbox, outbox, {16, 16, gid_index});
  end.connect(swap_over(socket, end.address()));
  swap_over(socket, 1);  // both are in RTS
  for (std::size_t m = 0; m < kPuts; ++m) end.put(m * kBytes, m * kBytes, kBytes, std::uint32_t(m));
  std::size_t came = 0, wrong = 0;
  while (came < kPuts) {
    const auto value = end.poll();
    if (!value) continue;
    wrong += *value != came;
    for (std::size_t i = came * kBytes; i < (came + 1) * kBytes; ++i)
      wrong += inbox[i] != std::byte(i * 7 + !first);
    ++came;
  }
  end.flush();
  swap_over(socket, 2);
  std::printf("%zu values of %zu bytes arrived, %zu wrong\n", came, kBytes, wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: %s DEVICE [GID INDEX]\n", argv[0]), 2;
  const int gid_index = argc > 2 ? std::atoi(argv[2]) : 1;
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return 1;
  const pid_t child = fork();
  int status = 1;
  try {
    status = one_end(argv[1], gid_index, sockets[child == 0], child == 0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", child == 0 ? "child" : "parent", error.what());
  }
  std::fflush(stdout);
  if (child == 0) _exit(status);
  close(sockets[0]);
  int theirs = 1;
  waitpid(child, &theirs, 0);
  return status != 0 || theirs != 0;
}
