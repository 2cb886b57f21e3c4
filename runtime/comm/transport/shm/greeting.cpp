#include "runtime/comm/transport/shm/greeting.hpp"

#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <unistd.h>

namespace ringsmith::comm {

namespace {

// Sent in one piece, and so received in one piece.
struct Letter {
  std::uint64_t format = kFormat;
  Word word{};
  std::int32_t rank = -1, blames = -1;  // the other one is -1
  static constexpr std::uint64_t kFormat = 0x52534d'73686d'0002;
};

// Room for one descriptor, not two: what CMSG_SPACE adds for alignment would hold a second.
struct Attachment {
  alignas(cmsghdr) char bytes[CMSG_LEN(sizeof(int))] = {};
};

msghdr message_of(iovec& data, Attachment& attachment, bool with) {
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (with) {
    message.msg_control = attachment.bytes;
    message.msg_controllen = sizeof attachment.bytes;
  }
  return message;
}

bool is_for(const Letter& letter, const Word& mine) {
  return letter.format == Letter::kFormat && letter.word == mine;
}

bool send_letter(int socket, Letter letter, int memory) noexcept {
  iovec data{&letter, sizeof letter};
  Attachment attachment;
  const msghdr message = message_of(data, attachment, memory >= 0);
  if (memory >= 0) {
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof memory);
    std::memcpy(CMSG_DATA(header), &memory, sizeof memory);
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == ssize_t{sizeof letter};
}

}  // namespace

bool of_our_user(int socket) noexcept {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && size == sizeof peer &&
         peer.uid == geteuid();
}

bool send_greeting(int socket, const Word& word, int rank, int memory) noexcept {
  return send_letter(socket, {Letter::kFormat, word, rank, -1}, memory);
}

void send_farewell(int socket, const Word& word, int culprit) noexcept {
  (void)send_letter(socket, {Letter::kFormat, word, -1, culprit}, -1);
}

Greeting receive_greeting(int socket, const Word& mine, Take take) {
  Letter letter;
  iovec data{&letter, sizeof letter};
  Attachment attachment;
  msghdr message = message_of(data, attachment, take == Take::memory);
  const ssize_t n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  Greeting said;
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return said;
  said.kind = n <= 0 ? Greeting::Kind::gone : Greeting::Kind::nonsense;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (n > 0 && header != nullptr && header->cmsg_level == SOL_SOCKET &&
      header->cmsg_type == SCM_RIGHTS) {
    int memory = -1;
    std::memcpy(&memory, CMSG_DATA(header), sizeof memory);
    said.memory = Descriptor(memory);
  }
  if (n != ssize_t{sizeof letter} || !is_for(letter, mine)) return said;
  if (letter.blames >= 0)
    said.kind = Greeting::Kind::leaves;
  else if (letter.rank >= 0)
    said.kind = Greeting::Kind::stays;
  said.rank = letter.rank;
  said.blames = letter.blames;
  return said;
}

int overhear_farewell(int socket, const Word& mine) noexcept {
  Letter letter;
  const ssize_t n = recv(socket, &letter, sizeof letter, MSG_PEEK | MSG_DONTWAIT);
  return n == ssize_t{sizeof letter} && is_for(letter, mine) ? letter.blames : -1;
}

}  // namespace ringsmith::comm
