#include "runtime/comm/transport/shm/greeting.hpp"

#include <array>
#include <cstring>
#include <sys/socket.h>

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

namespace {
// One byte or more must accompany a descriptor: the sender's rank. A farewell has no descriptor,
// and the culprit's rank below all ranks.
constexpr int kFarewell = -2;
}  // namespace

bool send_greeting(int socket, int rank, int memory) {
  iovec data{&rank, sizeof rank};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof memory)> space{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof memory);
  std::memcpy(CMSG_DATA(header), &memory, sizeof memory);
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof rank);
}

void send_farewell(int socket, int culprit) noexcept {
  const int word = kFarewell - culprit;
  (void)send(socket, &word, sizeof word, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int overhear_farewell(int socket) noexcept {
  int word = 0;
  const ssize_t n = recv(socket, &word, sizeof word, MSG_PEEK | MSG_DONTWAIT);
  return n == ssize_t{sizeof word} && word <= kFarewell ? kFarewell - word : -1;
}

Greeting receive_greeting(int socket) {
  int rank = -1;
  iovec data{&rank, sizeof rank};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) !=
      static_cast<ssize_t>(sizeof rank))
    return {};
  if (rank <= kFarewell) return {-1, kFarewell - rank, Descriptor()};
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS)
    throw CommError("connecting the ranks of this host: a greeting came without memory");
  int memory = -1;
  std::memcpy(&memory, CMSG_DATA(header), sizeof memory);
  return {rank, -1, Descriptor(memory)};
}

}  // namespace ringsmith::comm
