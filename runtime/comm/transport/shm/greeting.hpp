// The messages that ranks of a host exchange on their sockets: "I am rank 2, here is your word",
// then "here is my memory"; or "I am leaving, because of rank 1".
//
// Any process on the machine can connect to an abstract Unix socket. Therefore ranks ask the kernel
// which user is at the other end, and each message carries its receiver's random word
// (types/bootstrap.hpp). A rank sends its memory only to a process that has sent this rank's word,
// and accepts memory only in a message with its own word:
//
//     rank 2                                     rank 0, the listener
//     "rank 2", word of 0 --------------------->  is the word mine?
//     is the word mine?  <---------------------  "rank 0", word of 2, memory of 0
//     "rank 2", word of 0, memory of 2 -------->
#pragma once

#include <cstdint>

#include "runtime/base/process.hpp"
#include "runtime/comm/types/bootstrap.hpp"

namespace ringsmith::comm {

struct Greeting {
  enum class Kind : std::uint8_t {
    nothing,   // no message has arrived yet
    gone,      // the other end has closed
    nonsense,  // not from a member of this job
    stays,     // a rank introduces itself
    leaves     // a rank leaves because of another one
  };
  Kind kind = Kind::nothing;
  int rank = -1;        // the sender
  int blames = -1;      // the rank that made the sender leave
  Descriptor memory{};  // the sender's memory, if requested
};

// True if, according to the kernel, the process at the other end belongs to this user.
[[nodiscard]] bool of_our_user(int socket) noexcept;

// Both send a message and never block. word: the receiver's; memory: -1 for none. send_greeting()
// returns false if nothing was sent, e.g. because the other end has gone.
[[nodiscard]] bool send_greeting(int socket, const Word& word, int rank, int memory) noexcept;
void send_farewell(int socket, const Word& word, int culprit) noexcept;

// Receives a message for the rank whose word is `mine`. Without Take::memory, the kernel discards
// any descriptors in it, so strangers cannot fill this process's descriptor table.
enum class Take : std::uint8_t { words, memory };
[[nodiscard]] Greeting receive_greeting(int socket, const Word& mine, Take take);
// Returns the culprit's rank if the next message is a farewell, else -1. Leaves the message in the
// socket. Used with connected peers, which otherwise send only doorbells.
[[nodiscard]] int overhear_farewell(int socket, const Word& mine) noexcept;

}  // namespace ringsmith::comm
