// A way into the store that strangers cannot block, for the processes that its launcher started.
//
// The launcher creates a pair of connected sockets, keeps one end for its store, and lets every
// rank inherit the other end: the door. A process connects to the store by creating another pair
// and sending one end of it through the door. Several programs may use one door, because a rank may
// be a script. The protocol is the same as over TCP, including the proof, but processes that have
// not inherited the door cannot interfere.
#pragma once

#include <string>

#include "runtime/base/deadline.hpp"
#include "runtime/base/process.hpp"

namespace ringsmith::comm::store {

inline constexpr const char* kDoorVariable = "RINGSMITH_STORE_FD";

struct Door {
  Descriptor inside, outside;  // both are close-on-exec
};
// Throws CommError if the kernel cannot create the sockets.
[[nodiscard]] Door make_door();

// Returns the value of kDoorVariable: the descriptor and the inode number of the socket.
[[nodiscard]] std::string describe_door(int outside);
// Parses the text of describe_door() and returns the descriptor, now close-on-exec. Returns -1 if
// the text is malformed or the descriptor is not that socket, e.g. because a parent has closed it.
[[nodiscard]] int find_door(const char* text);

// Returns a new non-blocking connection whose other end has been sent through the door. It is
// invalid if the inner end is closed or the deadline passes.
[[nodiscard]] Descriptor knock(int outside, Deadline deadline);

enum class Caller { none, came, turned_away };  // turned_away: no descriptor was free for it
// Takes the next connection at the inner end, if one has arrived.
[[nodiscard]] Caller open_door(const Descriptor& inside, Descriptor& connection);

}  // namespace ringsmith::comm::store
