// The last output of a rank whose group fails: a file with its flight recorder and, if the launcher
// ends the rank before it can report the failure, a line with the reason.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

#include "runtime/comm/failure/rank_report.hpp"

namespace ringsmith::comm {

// The header of a flight recorder's file; copies of the rank's sites and of its Flight follow. When
// the group fails, the rank writes the file itself, possibly in a signal handler. If the rank was
// killed, a survivor on its host writes the file. flight_reader reads a folder of these files
// (labs/apps/launch/flight_log.hpp). The byte order is the machine's.
struct FlightHeader {
  static constexpr std::uint64_t kMagic = 0x5453'414c'4752'5352;
  std::uint64_t magic = kMagic;
  std::uint64_t bytes = 0;  // size of the whole file
  std::int32_t rank = -1, world = 0;
  std::int32_t pid = 0, written_by = -1;  // the rank that wrote the file: `rank`, or a survivor
  char host[64] = {};
  char group[64] = {};
  // The time of writing on two clocks; their difference converts the entries' times to dates.
  std::uint64_t monotonic = 0, wall = 0;  // nanoseconds
  // From the rank's board and its failure:
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
  // report and flight belong to rank whose.rank; rank whose.written_by calls write().
  FlightFile(const std::string& folder, const FlightHeader& whose, const RankReport* report,
             const Flight* flight);
  // Writes the file completely or not at all. May run in a signal handler, because it neither
  // allocates nor locks. Replaces an existing file only if `replace`. Returns false if the file was
  // not written, and prints the error unless the file existed.
  bool write(bool replace) const noexcept;

 private:
  std::string path_;
  std::string aside_;  // temporary name while it is written
  FlightHeader whose_;
  const RankReport* report_;
  const Flight* flight_;
};

// The error line of a rank that the launcher ends before the rank has noticed the failure.
//
// When a rank dies, mpirun ends all others with SIGTERM, often within a millisecond. The handler
// looks for the reason (a peer's report of a failure, or a closed socket) and prints it as one
// line. Without a reason, SIGTERM has its default effect. A handler that the program has installed
// is not replaced; that handler must call say_if_lost() itself (runtime/parallel/stop_request.hpp).
class LastWords {
 public:
  struct Peer {
    int rank = 0;
    pid_t pid = 0;
    std::string host;
    int socket = -1;
    bool remote = false;  // a closed socket may also mean a network failure
    const RankReport* report = nullptr;
  };
  LastWords(int rank, std::vector<Peer> peers);
  ~LastWords();
  // Sets the flight files, by rank; null: none. They must stay valid until the next call, or until
  // this object is destroyed. The handler writes this rank's file and, if the failed peer is on
  // this host, the peer's.
  void keep_flights(const std::vector<FlightFile>* files) { flights_ = files; }
  // Must be called when this rank is about to report the failure itself. For half a second, the
  // handler ignores SIGTERM, so that the rank has time to report it.
  static void already_said();
  // For a handler of SIGTERM: if there is a reason, prints the line and ends the process.
  static void say_if_lost() noexcept;

 private:
  int rank_;
  std::vector<Peer> peers_;
  std::atomic<const std::vector<FlightFile>*> flights_{nullptr};
  void write_flights(const Peer& peer) const;
};

}  // namespace ringsmith::comm
