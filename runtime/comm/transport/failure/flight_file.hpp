// The flight recorder of a rank as a file: its memory, as it is, behind a header that says whose it
// was. Written when the group fails: by the rank itself, also from the handler that ends it, and
// for a rank that was killed by a survivor of its host. labs/apps/launch/flight_reader reads a
// folder of them.
//
// One machine writes and reads them, or machines alike: the numbers are in the machine's own order.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>

#include "runtime/comm/transport/control.hpp"
#include "runtime/comm/transport/failure/flight.hpp"

namespace ringsmith::comm {

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
  // control and flight: of the rank whose file this is; written_by is who calls write().
  FlightFile(const std::string& folder, const FlightHeader& whose, const Control* control,
             const Flight* flight);
  // The file appears whole or not at all. No allocation, no lock: may run in a signal handler.
  // False if it could not be written, which standard error is told; an existing file is replaced
  // only if asked to.
  bool write(bool replace) const noexcept;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string aside_;  // while it is written
  FlightHeader whose_;
  const Control* control_;
  const Flight* flight_;
};

}  // namespace ringsmith::comm
