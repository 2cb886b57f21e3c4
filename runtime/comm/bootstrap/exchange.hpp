// An all-gather of small records through a store, by which the members of a job (its ranks, or the
// launchers of its nodes) find each other; and a clear word to all of them when one never comes.
//
// Member r leaves its record under ".../from/r" and counts itself in ".../arrived". Who comes last
// packs all records together and writes ".../result", for which everybody waits: one request to
// wait, whatever the number of members. The first that finds a fault writes the verdict
// into the same place, so that all members fail at once, with the same words:
//
//     a member is missing      the first whose deadline passes looks who has not arrived, or who
//                              has all records and does not hand them out
//     sizes disagree           found on arrival: the first member's size is in the store
//     a number was given twice found on arrival: each number has one owner
//     a member dies            its will (Store::leave_will) is the verdict: of this exchange, or of
//                              the next one if this one needs nothing more of it
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/comm/bootstrap/store/store.hpp"
#include "runtime/comm/types/bootstrap.hpp"

namespace ringsmith::comm {

struct Membership {
  std::string noun = "rank";             // "rank" or "node", in messages
  std::string size_name = "WORLD_SIZE";  // where their number comes from, in messages
  std::string prefix = "ranks";          // of the keys
  int index = 0;
  int size = 1;
  std::chrono::milliseconds timeout{30'000};  // of joining and of each all_gather
};

// For the launcher: if the members have not met yet, they never will, because of member `index`.
// All that wait, and all that come later, fail with `text`.
void declare_lost(Store& store, const Membership& members, int index, const std::string& text);

// For who holds the store's table: what that writes for the all_gather of this number, and under
// which key.
struct LossNote {
  std::string key, value;
};
[[nodiscard]] LossNote note_loss(const std::string& prefix, int round, int index,
                                 const std::string& text);

class Exchange {
 public:
  // MismatchError if members disagree on their number, or this one's index is taken.
  Exchange(std::shared_ptr<Store> store, Membership me);

  // Collective. TimeoutError naming the missing members, PeerLost if one died.
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record);
  // Before the store ends: waits until all members have the result of the last all_gather; 2 s if
  // one of them is lost.
  void await_readers();
  // The verdict on the next all_gather, if a member is known to have ended. Does not wait.
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
