// Flight recorders read back, and compared: where did the ranks of a group part company?
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/failure/last_words.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

struct FlightRecord {
  std::uint64_t number = 0;    // of the operation in its group, from 1
  std::uint64_t sequence = 0;  // among the collectives, or among the messages, from 0
  Call call;
  std::string site;                      // "train.cpp:120", or nothing
  std::uint64_t started = 0, ended = 0;  // nanoseconds since 1970; ended 0: it has not

  [[nodiscard]] bool is_message() const {
    return call.collective == Collective::send || call.collective == Collective::recv;
  }
  // "all_reduce(sum, f32, 1024) at train.cpp:120"
  [[nodiscard]] std::string describe() const;
};

struct FlightLog {
  FlightHeader header;
  std::vector<FlightRecord> records;  // oldest first
};

// UsageError naming the file if it cannot be read or is no whole flight recorder. Never waits, as a
// FIFO of that name would make it. Names and texts in it are as somebody wrote them: not for a
// terminal as they are.
[[nodiscard]] FlightLog read_flight(const std::string& path);

// The first collective that not all ranks have completed, or not all alike.
struct Divergence {
  enum class Kind : std::uint8_t {
    different,  // ranks made different calls
    missing,    // some have not made the call that others are in
    unfinished  // all made it, not all came out
  };
  Kind kind = Kind::different;
  std::uint64_t sequence = 0;
  // Ranks in the same call, largest party first; absent: ranks that have not come so far.
  struct Party {
    std::optional<Call> call;
    std::vector<const FlightLog*> ranks;
  };
  std::vector<Party> parties;
};

// Logs of one group, of some or all of its ranks. Collectives that have been overwritten in one of
// them are not compared.
[[nodiscard]] std::optional<Divergence> first_divergence(const std::vector<FlightLog>& logs);
// Of one rank; null if it has no such record.
[[nodiscard]] const FlightRecord* find_collective(const FlightLog& log, std::uint64_t sequence);

}  // namespace ringsmith::comm
