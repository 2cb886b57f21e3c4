// What a rank says when its launcher ends it before it could notice the trouble itself.
//
// mpirun answers the death of one rank by ending all others with SIGTERM, often within a
// millisecond. The handler then looks for the reason (a peer's report of a failure, or a socket
// that has closed) and prints it as one line, as the group would have done a moment later. If
// there is no reason, SIGTERM does what it always does. Nothing is installed over a handler of the
// program's own.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "runtime/comm/failure/flight_file.hpp"
#include "runtime/comm/transport/control.hpp"

namespace ringsmith::comm {

class LastWords {
 public:
  struct Peer {
    int rank = 0;
    pid_t pid = 0;
    std::string host;
    int socket = -1;
    bool remote = false;  // then a closed socket may be the wire's doing
    const Control* control = nullptr;
  };
  LastWords(int rank, std::vector<Peer> peers);
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;
  ~LastWords();
  // Also to be written then: this rank's, and that of a rank that is gone, if this host has its
  // memory. By rank; null: nothing. They must live as long as this.
  void keep_flights(const std::vector<FlightFile>* files) { flights_ = files; }
  // The rank has found the trouble and is about to report it: leave it the time to do so.
  static void already_said();

 private:
  int rank_;
  std::vector<Peer> peers_;
  std::atomic<const std::vector<FlightFile>*> flights_{nullptr};
  void write_flights(const Peer& peer) const;
  friend void look_around(int signal);
};

}  // namespace ringsmith::comm
