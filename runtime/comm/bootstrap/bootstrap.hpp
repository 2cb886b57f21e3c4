// How ranks find each other before they can talk: rank, size, and an exchange of small records.
//
// Whoever started the processes knows them (mpirun, a launcher, a test); the group needs only this
// much of it. No data of a collective ever goes through a bootstrap.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/bootstrap/lost_member.hpp"
#include "runtime/comm/bootstrap/place.hpp"
#include "runtime/comm/types/options.hpp"

namespace ringsmith::comm {

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  // Every rank gives one record (up to 4 KiB) and gets those of all ranks, in rank order.
  // Collective.
  [[nodiscard]] virtual std::vector<std::string> all_gather(const std::string& record) = 0;
  // A rank that is known to have ended since the last all_gather, if this bootstrap can know; {}
  // otherwise. For those who wait for a peer that does not come; does not wait itself.
  [[nodiscard]] virtual std::optional<LostMember> lost_rank() { return {}; }
  // The group is broken: peers may be gone, so leaving must not wait for them.
  virtual void abandon() {}
  // Does whoever started the ranks end all of them (SIGTERM) when one dies?
  [[nodiscard]] virtual bool ends_survivors() const { return false; }
  // For ranks that were on nodes before, in the group that this one is a part of: the number of
  // this rank's.
  [[nodiscard]] virtual std::optional<int> node() const { return {}; }
  // Empty for all ranks of the job; else which of them, for error messages.
  [[nodiscard]] virtual std::string scope() const { return {}; }
};

// What the environment shows, or the kind that was asked for: place.hpp. Joins the job, within the
// timeout; UsageError if the environment does not say enough.
[[nodiscard]] std::shared_ptr<Bootstrap> make_bootstrap(BootstrapKind kind,
                                                        std::chrono::milliseconds timeout);

}  // namespace ringsmith::comm
