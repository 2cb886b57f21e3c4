// How ranks find each other before they can communicate. A bootstrap tells a rank its number and
// the size of the job, and exchanges small records between the ranks, usually through their
// launcher (mpirun, ringrun, a test). It carries no data of collectives. The implementations are in
// runtime/job.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

enum class BootstrapKind : std::uint8_t { automatic, mpi, env, slurm, file, self };
inline constexpr std::array<std::string_view, 6> kBootstrapNames{"auto",  "mpi",  "env",
                                                                 "slurm", "file", "self"};
[[nodiscard]] inline std::string_view name_of(BootstrapKind kind) {
  return kBootstrapNames.at(static_cast<std::size_t>(kind));
}
[[nodiscard]] inline BootstrapKind parse_bootstrap(std::string_view name) {
  for (std::size_t i = 0; i < kBootstrapNames.size(); ++i)
    if (kBootstrapNames[i] == name) return static_cast<BootstrapKind>(i);
  throw UsageError("unknown bootstrap '" + std::string(name) +
                   "': use auto, mpi, env, slurm, file or self");
}

// A member of a job that ended while others still wait for it.
struct LostMember {
  int index = -1;    // its rank, or its node's number
  std::string text;  // for the error: "rank 2 (pid 4711 on host a) ended before ..."
};

constexpr std::size_t kRecordRoom = 4096;  // bytes; every record is shorter
// Throws UsageError if the record is too long.
inline void check_record(const std::string& record) {
  require(record.size() < kRecordRoom, "bootstrap record of " + std::to_string(record.size()) +
                                           " bytes: at most " + std::to_string(kRecordRoom - 1) +
                                           " fit; pass fewer or shorter values");
}

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  // Collective. Every rank passes one record, shorter than kRecordRoom, and gets all records in
  // rank order. Throws UsageError if this rank's record is longer.
  [[nodiscard]] virtual std::vector<std::string> all_gather(const std::string& record) = 0;
  // Returns a rank that has ended since the last all_gather, or {} if none is known. Does not
  // block.
  [[nodiscard]] virtual std::optional<LostMember> lost_rank() { return {}; }
  // Called when the group is broken. Afterwards the destructor must not wait for peers.
  virtual void abandon() {}
  // True if the launcher ends all ranks with SIGTERM when one dies.
  [[nodiscard]] virtual bool ends_survivors() const { return false; }
  // For a subgroup: returns this rank's node number in the parent group, if known.
  [[nodiscard]] virtual std::optional<int> node() const { return {}; }
  // Returns a name for this bootstrap's ranks, for error messages; empty for all ranks of the job.
  [[nodiscard]] virtual std::string scope() const { return {}; }
};

// A random word, by which members of a job recognize each other on the sockets between them.
//
// Each rank draws a word for each group and announces it through the bootstrap, which only members
// of the job can read. A rank that connects to another must first send that rank's word. Over TCP
// this is the only protection; within a host, the kernel also identifies the peer's user
// (shm/greeting.hpp).
using Word = std::array<std::uint64_t, 2>;

[[nodiscard]] inline Word random_word() {
  std::random_device random;
  const auto half = [&random] { return std::uint64_t{random()} << 32 | random(); };
  return {half(), half()};
}

}  // namespace ringsmith::comm
