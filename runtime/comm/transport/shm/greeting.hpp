// What ranks of a host say to each other on their sockets: "I am rank 2, here is your word", then
// "here is my memory"; or "I leave, because of rank 1".
//
// Any process of the machine can connect to a socket that has no file. So the kernel is asked whose
// process it is, each letter carries the word of the rank that it is for (transport/word.hpp), and
// memory is given only to who has shown a word, and taken only from such:
//
//     rank 2                                     rank 0, who listens
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
    nothing,   // nothing has come yet
    gone,      // the other end has closed
    nonsense,  // of no member of this job
    stays,     // a rank says who it is
    leaves     // a rank leaves, because of another one
  };
  Kind kind = Kind::nothing;
  int rank = -1;        // who speaks
  int blames = -1;      // because of whom it leaves
  Descriptor memory{};  // of one that stays, if it was to be taken
};

// Did a process of our user connect, or listen, at the other end? The kernel noted it then.
[[nodiscard]] bool of_our_user(int socket) noexcept;

// word: of the one that it is for; memory: -1 for none. None of these ever waits. False: the other
// end has gone.
[[nodiscard]] bool send_greeting(int socket, const Word& word, int rank, int memory) noexcept;
void send_farewell(int socket, const Word& word, int culprit) noexcept;

// What has come, for one whose word is `mine`. Descriptors are taken only if asked for: the
// kernel drops those of strangers.
enum class Take : std::uint8_t { words, memory };
[[nodiscard]] Greeting receive_greeting(int socket, const Word& mine, Take take);
// The culprit's rank, if the next that comes is a farewell, which stays there; else -1. For one who
// has been greeted already: what else may come is a doorbell.
[[nodiscard]] int overhear_farewell(int socket, const Word& mine) noexcept;

}  // namespace ringsmith::comm
