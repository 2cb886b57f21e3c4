// Reads flight recorders and compares them to find where the ranks of a group diverged.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/failure/last_words.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

struct FlightRecord {
  std::uint64_t number = 0;    // position among the group's operations, from 1
  std::uint64_t sequence = 0;  // position among the collectives, or among the messages, from 0
  Call call;
  std::string site;                      // "train.cpp:120", or empty
  std::uint64_t started = 0, ended = 0;  // nanoseconds since 1970; ended 0: not complete

  [[nodiscard]] bool is_message() const {
    return call.collective == Collective::send || call.collective == Collective::recv;
  }
  [[nodiscard]] std::string describe() const;
};

struct FlightLog {
  FlightHeader header;
  std::vector<FlightRecord> records;  // oldest first
};

// Throws UsageError naming the file if it is unreadable, incomplete or corrupt. Never blocks, not
// even on a FIFO. The texts are untrusted: sanitize them before printing them.
[[nodiscard]] FlightLog read_flight(const std::string& path);

// The first collective that not all ranks have completed, or in which the ranks' calls differ.
struct Divergence {
  enum class Kind : std::uint8_t {
    different,  // ranks made different calls
    missing,    // some ranks have not made the call that others have made
    unfinished  // all ranks made the call, but not all have returned
  };
  Kind kind = Kind::different;
  std::uint64_t sequence = 0;
  // Ranks that made the same call or, if `call` is empty, that have no record of this collective.
  // The largest party is first.
  struct Party {
    std::optional<Call> call;
    std::vector<const FlightLog*> ranks;
  };
  std::vector<Party> parties;
};

// Takes the logs of some or all ranks of one group. Skips collectives that have been overwritten in
// any log.
[[nodiscard]] std::optional<Divergence> first_divergence(const std::vector<FlightLog>& logs);
// Returns null if the log has no record of the collective.
[[nodiscard]] const FlightRecord* find_collective(const FlightLog& log, std::uint64_t sequence);

}  // namespace ringsmith::comm
