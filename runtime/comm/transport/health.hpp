// The health of a group's ranks as seen by one of them: which rank is alive, has failed, or is to
// blame. Each rank publishes its activity, so that the others can explain a failure. The first
// failure is reported to the peers and breaks the group.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/base/error.hpp"
#include "runtime/comm/failure/last_words.hpp"
#include "runtime/comm/failure/rank_report.hpp"
#include "runtime/comm/failure/wait_for_graph.hpp"
#include "runtime/comm/transport/segments.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

class Health {
 public:
  Health(Segments& segments, const GroupOptions& options);
  // Publishes that this rank has left the group.
  ~Health();
  Health(const Health&) = delete;
  Health& operator=(const Health&) = delete;

  [[nodiscard]] int rank() const { return segments_.rank(); }

  // ---- entering and leaving a call ----
  void enter(const Call& call, std::uint64_t sequence, Site site) {
    if (const SiteText* fresh = report_.begin(call, sequence, site))
      segments_.expose_to_all(fresh, sizeof *fresh);
  }
  void leave() { report_.end(); }
  void at_step(std::int64_t step) { report_.at_step(step); }
  // On failure, writes this rank's and a lost local rank's flight recorder to folder. Thread-safe.
  void keep_flight_in(const std::string& folder);

  // ---- failing; from any thread ----
  // With remote ranks, fail() and record_failure() use the network, so only the thread whose turn
  // it is (queue.hpp) may call them.
  // Throws if the group has failed before.
  void check_usable() const {
    if (!is_usable()) refuse();
  }
  [[nodiscard]] bool is_usable() const { return !is_broken_.load(std::memory_order_acquire); }
  // Reports the failure to the other ranks, marks the group as broken, and throws the error.
  [[noreturn]] void fail(FailureKind kind, int culprit, const std::string& text);
  // Like fail(), but does not throw: the group's next call will throw the error. Only the first
  // failure is recorded.
  void record_failure(FailureKind kind, int culprit, const std::string& text);
  [[nodiscard]] Where where(int peer) const;
  // Marks the group as aborted. A thread that is in a call notices the mark and reports it. If no
  // thread is in a call, report_aborted() must be called.
  void mark_aborted(Site site);
  void report_aborted();
  // Returns e.g. " at train.cpp:120", where the rank made the call; empty if unknown.
  [[nodiscard]] std::string at_site(int rank, std::uint64_t site) const;

  // ---- reasons why a wait would never end ----
  struct Failed {
    FailureKind kind = FailureKind::none;
    int culprit = -1;
    std::string text;
  };
  // Never blocks. A peer that is gone without leaving the group is always a failure. A peer that
  // has left the group, even because of an exception, is a failure only if it is for_peer.
  [[nodiscard]] Failed look_for_failure(int for_peer) const;
  // Finds only failures that peers have reported, or an abort of this group. Makes no system call.
  [[nodiscard]] Failed look_for_report() const;
  // Returns the message for a timeout: the rank to blame, and the state of all ranks. Sets culprit.
  [[nodiscard]] std::string explain_timeout(int for_peer, int& culprit) const;
  [[nodiscard]] std::string wait_for_graph() const { return see_all().describe(); }
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }
  // Also applies to a wait in progress. Thread-safe.
  void set_timeout(std::chrono::milliseconds timeout);

  // ---- during a long wait ----
  // Sends this rank's current activity to remote ranks.
  void show_board();
  // Tells the ranks of this host, through the other groups that the same thread has made, that this
  // rank waits in this group or, if `waits` is false, that it no longer waits.
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

  Segments& segments_;
  std::atomic<std::chrono::milliseconds> timeout_;
  mutable std::mutex failing_;
  Failed broken_;                       // the first failure of this group, on this rank
  std::atomic<bool> is_broken_{false};  // stored after broken_
  std::atomic<bool> aborted_{false};
  const std::thread::id made_by_ = std::this_thread::get_id();  // ranks may be threads
  Site aborted_at_;                                             // written before aborted_
  OwnReport report_;
  std::string group_, flight_folder_;
  std::vector<FlightFile> flight_files_;   // by rank; empty: files are not written
  std::unique_ptr<LastWords> last_words_;  // set if the launcher ends survivors
};

[[noreturn]] void throw_failure(FailureKind kind, const std::string& text, const Where& where);

}  // namespace ringsmith::comm
