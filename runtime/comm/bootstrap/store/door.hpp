// A way into the store for the processes that its launcher started, past all strangers.
//
// The launcher makes a pair of connected sockets, keeps one end for its store, and lets every rank
// inherit the other: the door. Who wants to talk to the store makes a connected pair of its own and
// hands one end of it through the door. So any number of programs may use one door, at once or one
// after the other (a rank may be a script that runs several), and each connection ends with the
// program that made it, though its script still has the door. On the connection they speak as over
// TCP, proof and all; but nobody who has not inherited the door can be in the way.
#pragma once

#include <string>

#include "runtime/base/deadline.hpp"
#include "runtime/base/process.hpp"

namespace ringsmith::comm::store {

inline constexpr const char* kDoorVariable = "RINGSMITH_STORE_FD";

struct Door {
  Descriptor inside, outside;  // close-on-exec, both
};
// CommError if the kernel refuses.
[[nodiscard]] Door make_door();

// For kDoorVariable: the descriptor, and by which number the kernel knows the socket.
[[nodiscard]] std::string describe_door(int outside);
// The descriptor that such a text names, from now on closed in programs that this process starts.
// -1 if it is not that socket: a parent on the way here has closed it, or the text is none of ours.
[[nodiscard]] int find_door(const char* text);

// A new connection, non-blocking, whose other end has been handed through the door; invalid if
// nobody is inside, or the deadline passes.
[[nodiscard]] Descriptor knock(int outside, Deadline deadline);

enum class Caller { none, came, turned_away };  // turned_away: for want of a descriptor
// Inside: the next connection, if one has come.
[[nodiscard]] Caller open_door(const Descriptor& inside, Descriptor& connection);

}  // namespace ringsmith::comm::store
