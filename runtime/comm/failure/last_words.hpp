// What a rank leaves behind when its group fails: its flight recorder as a file, and a line that
// says why if its launcher ends it first. Both may run in a signal handler.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

#include "runtime/comm/failure/rank_report.hpp"

namespace ringsmith::comm {

// The flight recorder of a rank as a file: its memory, as it is, behind a header that says whose it
// was. Written when the group fails: by the rank itself, also from the handler that ends it, and
// for a rank that was killed by a survivor of its host. labs/apps/flight_reader reads a folder of
// them (flight_log.hpp).
//
// One machine writes and reads them, or machines alike: the numbers are in the machine's own order.
struct FlightHeader {
  static constexpr std::uint64_t kMagic = 0x5453'414c'4752'5352;
  std::uint64_t magic = kMagic;
  std::uint64_t bytes = 0;  // of the whole file
  std::int32_t rank = -1, world = 0;
  std::int32_t pid = 0, written_by = -1;  // a rank; itself, unless it was killed
  char host[64] = {};
  char group[64] = {};
  // When this was written, by two clocks: the difference makes a date of the entries' times.
  std::uint64_t monotonic = 0, wall = 0;  // nanoseconds
  // The board, and how it ended.
  std::uint64_t sequence = 0;
  std::int64_t step = -1;
  std::int32_t waits_for = -1;
  std::uint32_t waited = 0, busy = 0;
  FailureKind kind = FailureKind::none;
  std::int32_t culprit = -1;
  char text[kFailureText] = {};
};

class FlightFile {
 public:
  // report and flight: of the rank whose file this is; written_by is who calls write().
  FlightFile(const std::string& folder, const FlightHeader& whose, const RankReport* report,
             const Flight* flight);
  // The file appears whole or not at all. No allocation, no lock: may run in a signal handler.
  // False if it could not be written, which standard error is told; an existing file is replaced
  // only if asked to.
  bool write(bool replace) const noexcept;

 private:
  std::string path_;
  std::string aside_;  // while it is written
  FlightHeader whose_;
  const RankReport* report_;
  const Flight* flight_;
};

// What a rank says when its launcher ends it before it could notice the trouble itself.
//
// mpirun answers the death of one rank by ending all others with SIGTERM, often within a
// millisecond. The handler then looks for the reason (a peer's report of a failure, or a socket
// that has closed) and prints it as one line, as the group would have done a moment later. If
// there is no reason, SIGTERM does what it always does. Nothing is installed over a handler of the
// program's own, which calls say_if_lost() itself (parallel/stop_request.hpp).
class LastWords {
 public:
  struct Peer {
    int rank = 0;
    pid_t pid = 0;
    std::string host;
    int socket = -1;
    bool remote = false;  // then a closed socket may be the wire's doing
    const RankReport* report = nullptr;
  };
  LastWords(int rank, std::vector<Peer> peers);
  ~LastWords();
  // Also to be written then: this rank's, and that of a rank that is gone, if this host has its
  // memory. By rank; null: nothing. They must live as long as this.
  void keep_flights(const std::vector<FlightFile>* files) { flights_ = files; }
  // The rank has found the trouble and is about to report it: leave it the time to do so.
  static void already_said();
  // For a handler of SIGTERM: ends the process with that line if there is a reason, or returns.
  static void say_if_lost() noexcept;

 private:
  int rank_;
  std::vector<Peer> peers_;
  std::atomic<const std::vector<FlightFile>*> flights_{nullptr};
  void write_flights(const Peer& peer) const;
};

}  // namespace ringsmith::comm
