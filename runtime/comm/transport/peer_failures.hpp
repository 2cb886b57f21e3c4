// What goes wrong between the ranks of a group, and what this rank is doing, for the others to read
// if something does. A failure is said once, to the peers too, and breaks the group.
#pragma once

#include <mutex>
#include <optional>
#include <thread>

#include "runtime/base/error.hpp"
#include "runtime/comm/failure/last_words.hpp"
#include "runtime/comm/failure/own_report.hpp"
#include "runtime/comm/failure/wait_for_graph.hpp"
#include "runtime/comm/transport/peer_memory.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

class PeerFailures : public PeerMemory {
 public:
  // ---- being in a call ----
  void enter(const Call& call, std::uint64_t sequence, Site site) {
    if (const SiteText* fresh = report_.begin(call, sequence, site))
      expose_to_all(fresh, sizeof *fresh);
  }
  void leave() { report_.end(); }
  void at_step(std::int64_t step) { mine().board.step.store(step, std::memory_order_relaxed); }
  // If the group fails, its flight recorder goes to a file in this folder. From any thread.
  void keep_flight_in(const std::string& folder);

  // ---- failing; from any thread ----
  // Throws if the group has failed before: a broken group stays broken.
  void check_usable() const {
    if (!is_usable()) refuse();
  }
  [[nodiscard]] bool is_usable() const { return !is_broken_.load(std::memory_order_acquire); }
  // Records the failure for the others, marks the group as broken, and throws the kind of error.
  [[noreturn]] void fail(FailureKind kind, int culprit, const std::string& text);
  // The same without the throwing: the next call will. Only the first failure counts.
  void record_failure(FailureKind kind, int culprit, const std::string& text);
  [[nodiscard]] Where where(int peer) const;
  // From now on nobody will answer: whoever is in a call finds it and reports it;
  // report_aborted() does so for a group that is in none.
  void mark_aborted(Site site);
  void report_aborted();
  // " at train.cpp:120", where rank says that it made a call; or nothing.
  [[nodiscard]] std::string at_site(int rank, std::uint64_t site) const;

  // ---- why waiting would never end ----
  struct Failed {
    FailureKind kind = FailureKind::none;
    int culprit = -1;
    std::string text;
  };
  // Never blocks. A peer that has left the group in good order is a failure only for who waits for
  // it.
  [[nodiscard]] Failed look_for_failure(int for_peer) const;
  // Only what peers themselves have reported: a look at memory. Or that this group was aborted.
  [[nodiscard]] Failed look_for_report() const;
  [[nodiscard]] bool is_gone(int rank) const;  // its process has ended, or left the group
  // What to say when the deadline has passed: who is to blame, and where all ranks are. Sets
  // culprit.
  [[nodiscard]] std::string explain_timeout(int for_peer, int& culprit) const;
  [[nodiscard]] std::string wait_for_graph() const { return see_all().describe(); }
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }

 protected:
  PeerFailures(std::shared_ptr<Bootstrap> bootstrap, const GroupOptions& options);
  ~PeerFailures();
  // Tells remote ranks what this one is doing.
  void show_board();
  // Tells ranks of this host, in this process's other groups, that this rank waits in this one; or
  // no longer.
  void tell_other_groups(bool waits);

 private:
  struct Groups;
  static Groups& groups();
  [[noreturn]] void refuse() const;
  void speak_before_the_end();
  [[nodiscard]] FlightFile flight_of(int rank) const;
  void write_flight(int lost) const;
  void name_peer(int rank, Where& where) const;
  [[nodiscard]] std::string describe_rank(int rank) const;
  [[nodiscard]] WaitForGraph see_all() const;

  std::chrono::milliseconds timeout_;
  mutable std::mutex failing_;
  Failed broken_;                       // the first failure of this group, on this rank
  std::atomic<bool> is_broken_{false};  // stored after it
  std::atomic<bool> aborted_{false};
  const std::thread::id made_by_ = std::this_thread::get_id();  // ranks may be threads
  Site aborted_at_;                                             // written before aborted_
  OwnReport report_;
  std::string group_, flight_folder_;
  std::vector<FlightFile> flight_files_;   // by rank; empty: keep none
  std::unique_ptr<LastWords> last_words_;  // where the launcher ends survivors
};

[[noreturn]] void throw_failure(FailureKind kind, const std::string& text, const Where& where);

}  // namespace ringsmith::comm
