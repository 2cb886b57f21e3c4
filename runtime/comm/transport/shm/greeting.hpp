// The first, and only, thing that ranks of a host say to each other on their sockets: "I am rank 2,
// and here is my memory", or "I leave, because of rank 1".
#pragma once

#include "runtime/base/descriptor.hpp"

namespace ringsmith::comm {

struct Greeting {
  int rank = -1;        // who speaks; -1: nobody, the other end has gone
  int blames = -1;      // the rank because of which it leaves; -1: it stays
  Descriptor memory{};  // of a rank that stays
};

// False: the other end has gone.
[[nodiscard]] bool send_greeting(int socket, int rank, int memory);
// The culprit's rank, if the next that comes is a farewell, which stays there; else -1. For one who
// has been greeted already: what else may come is a doorbell.
[[nodiscard]] int overhear_farewell(int socket) noexcept;
void send_farewell(int socket, int culprit) noexcept;
// To be called when the socket is readable. CommError if it is not of this protocol.
[[nodiscard]] Greeting receive_greeting(int socket);

}  // namespace ringsmith::comm
