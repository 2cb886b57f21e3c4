// Lets in the ranks above this one, whose greetings come in any order, among strangers; and while
// they are awaited, learns whose fault it is if they do not come.
//
//     rank 1 dies      rank 2: cannot reach it, gives up: farewell, "because of 1" --.
//                      rank 0: waits for 1, 2 and 3, hears it from 2  <--------------'
//                      rank 3: comes late, and still hears it from 0 and 2, who linger
#pragma once

#include <poll.h>

#include "runtime/comm/bootstrap/bootstrap.hpp"
#include "runtime/comm/transport/tcp/connect.hpp"
#include "runtime/comm/transport/tcp/greeting.hpp"

namespace ringsmith::comm::tcp {

// Who is to blame for connections that were closed before all were made.
struct Suspicion {
  enum class Ground : std::uint8_t { none, left_later, silent, accused };  // the last is the best
  int rank = -1;
  Ground ground = Ground::none;

  void add(int peer, const Descriptor& closed_socket);

 private:
  void set(int who, Ground better);
};

// A connection whose greeting has not come yet.
struct Guest {
  Descriptor socket;
  Greeting greeting;
  std::size_t got = 0;
  bool read_on();  // false: send it away
};

class Reception {
 public:
  // links: of those below this rank, and where the others are put.
  Reception(Bootstrap& bootstrap, const Descriptor& listener, const Word& word, int sockets,
            std::vector<Link>& links, std::vector<bool> remote);

  // Until all ranks above that are remote have come. PeerLost if one died or gave up, with the rank
  // to blame; TimeoutError with the ranks that have not come by the deadline.
  void let_in(Deadline deadline);
  // Tells everybody, those included who come only now, because of whom this rank leaves.
  void give_up(int to_blame);

 private:
  [[nodiscard]] int missing() const;  // connections
  [[nodiscard]] bool has_come(std::size_t rank) const;
  bool look(std::vector<pollfd>& entries, int timeout_ms);  // did anything happen?
  void hear(std::size_t guest);
  void ask_bootstrap();
  [[noreturn]] void complain();

  Bootstrap& bootstrap_;
  const Descriptor& listener_;
  const Word& word_;
  int rank_;
  int sockets_;
  std::vector<Link>& links_;
  std::vector<bool> remote_;
  std::vector<Guest> guests_;
  std::vector<bool> closed_;
  Suspicion suspicion_;
};

}  // namespace ringsmith::comm::tcp
