// An all-gather of small records through a store. The members of a job (its ranks, or the launchers
// of its nodes) use it to find each other. If a member never arrives, all others get a clear error.
//
// Member r writes its record to ".../from/r" and increments the counter ".../arrived". The last to
// arrive packs the records into a few values and writes ".../result", the key for which all members
// wait. The first member that finds a fault writes the verdict to that key, so all members fail
// immediately, with the same message:
//
//     a member is missing      the first member whose deadline passes names the missing members, or
//                              the member that has all records and has not published them
//     sizes disagree           found on arrival: the first member's size is in the store
//     an index was given twice found on arrival: each index has one owner
//     a member dies            its will (Store::leave_will) is the verdict: of this exchange, or of
//                              the next one if this one is complete
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/comm/types/bootstrap.hpp"
#include "runtime/job/store/store.hpp"

namespace ringsmith::comm {

struct Membership {
  std::string noun = "rank";             // "rank" or "node", for messages
  std::string size_name = "WORLD_SIZE";  // variable or option that sets `size`, for messages
  std::string prefix = "ranks";          // of the keys
  int index = 0;
  int size = 1;
  std::chrono::milliseconds timeout{30'000};  // of each all_gather
};

// Called by the launcher when member `index` is lost. If the members have not all met yet, the
// others fail with `text`.
void declare_lost(Store& store, const Membership& members, int index, const std::string& text);

// Key and value that make all_gather number `round` fail. For the store's server.
struct LossNote {
  std::string key, value;
};
[[nodiscard]] LossNote note_loss(const std::string& prefix, int round, int index,
                                 const std::string& text);

class Exchange {
 public:
  // Throws MismatchError if the members disagree on the size, or if this member's index is taken.
  Exchange(std::shared_ptr<Store> store, Membership me);

  // Collective. Throws TimeoutError naming the missing members, PeerLost if one died, MismatchError
  // if a member's constructor threw it.
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record);
  // Waits until all members have read the result of the last all_gather, for at most the timeout,
  // or 2 s once a member is lost. Must be called before the store's server stops.
  void await_readers();
  // Returns the member whose loss will make the next all_gather fail. Does not wait for other
  // members, only for the store's answer.
  [[nodiscard]] std::optional<LostMember> lost_member();

 private:
  [[nodiscard]] std::string key(const std::string& name, int rounds_on = 0) const;
  [[nodiscard]] std::string member_key(int index) const;
  void leave_will();
  void collect();
  void forget(int round);
  [[nodiscard]] std::string describe_missing(int& first);
  [[noreturn]] void fail(const std::string& verdict);

  std::shared_ptr<Store> store_;
  Membership me_;
  std::string self_;  // "rank 2 (pid 4711 on host a)"
  int round_ = 0;
};

}  // namespace ringsmith::comm
