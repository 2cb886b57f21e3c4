// How ranks find each other before they can talk, as the floors above need it: rank, size, and an
// exchange of small records. Whoever started the processes knows them (mpirun, a launcher, a test).
// No data of a collective ever goes through a bootstrap. The ways are in runtime/comm/bootstrap.
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

// The ways in which the ranks of a job find each other.
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

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  // Collective: every rank gives one record, up to 4 KiB, and gets those of all, in rank order.
  [[nodiscard]] virtual std::vector<std::string> all_gather(const std::string& record) = 0;
  // A rank that is known to have ended since the last all_gather, if this bootstrap can know; {}
  // otherwise. For those who wait for a peer that does not come; does not wait itself.
  [[nodiscard]] virtual std::optional<LostMember> lost_rank() { return {}; }
  // The group is broken: peers may be gone, so leaving must not wait for them.
  virtual void abandon() {}
  // Does whoever started the ranks end all of them (SIGTERM) when one dies?
  [[nodiscard]] virtual bool ends_survivors() const { return false; }
  // For ranks that were on nodes before, in the group that this one is a part of: this rank's node.
  [[nodiscard]] virtual std::optional<int> node() const { return {}; }
  // Empty for all ranks of the job; else which of them, for error messages.
  [[nodiscard]] virtual std::string scope() const { return {}; }
};

// The random word of a rank, by which members of a job know each other on the sockets between them.
//
// Each rank draws one for each group and says it in the bootstrap's exchange, which only members of
// the job hear. A caller first shows the rank's word; one that cannot is a stranger.
// Over TCP that is all that keeps strangers out; between ranks of a host the kernel says besides
// whose process is at the other end (shm/greeting.hpp).
using Word = std::array<std::uint64_t, 2>;

// From the kernel's generator, or the processor's.
[[nodiscard]] inline Word random_word() {
  std::random_device random;
  const auto half = [&random] { return std::uint64_t{random()} << 32 | random(); };
  return {half(), half()};
}

}  // namespace ringsmith::comm
