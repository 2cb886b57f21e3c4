#include "runtime/comm/transport/shm/greeting.hpp"

#include <cerrno>
#include <sys/socket.h>
#include <unistd.h>

namespace ringsmith::comm {

namespace {

// A message as it is sent: in one piece, and therefore received in one piece.
struct Letter {
  std::uint64_t format = kFormat;
  Word word{};
  std::int32_t rank = -1, blames = -1;  // exactly one of them is used; the other is -1
  static constexpr std::uint64_t kFormat = 0x52534d'73686d'0002;
};

bool is_for(const Letter& letter, const Word& mine) {
  return letter.format == Letter::kFormat && letter.word == mine;
}

bool send_letter(int socket, Letter letter, int memory) noexcept {
  return send_with_descriptor(socket, &letter, sizeof letter, memory) == ssize_t{sizeof letter};
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
  Greeting said;
  const ssize_t n = receive_with_descriptor(socket, &letter, sizeof letter,
                                            take == Take::memory ? &said.memory : nullptr);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return said;
  if (n < 0 && errno == EMFILE) throw_errno("receiving a peer's memory", errno);
  said.kind = n <= 0 ? Greeting::Kind::gone : Greeting::Kind::nonsense;
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
  const ssize_t n = ::recv(socket, &letter, sizeof letter, MSG_PEEK | MSG_DONTWAIT);
  return n == ssize_t{sizeof letter} && is_for(letter, mine) ? letter.blames : -1;
}

}  // namespace ringsmith::comm
