// The ranks of a group as seen by one of them: everybody's segment - the shared memory of a rank on
// the same host, the mirror of a remote one (wires.hpp) -, waiting for counters in it, and the ways
// in which waiting can fail.
//
// Waiting. First spin (a peer on another core answers within a microsecond), then yield (with more
// ranks than cores the peer may need this core), then sleep on a futex until the peer rings. While
// yielding and sleeping, look every couple of milliseconds for what would make the wait endless:
// a peer that is gone (its socket has closed), a peer that has failed, the deadline.
#pragma once

#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/comm/call.hpp"
#include "runtime/comm/failure/last_words.hpp"
#include "runtime/comm/failure/rank_report.hpp"
#include "runtime/comm/failure/wait_for_graph.hpp"
#include "runtime/comm/transport/control.hpp"
#include "runtime/comm/transport/layout.hpp"
#include "runtime/comm/transport/shm/arena.hpp"
#include "runtime/comm/transport/shm/mesh.hpp"
#include "runtime/comm/transport/wires.hpp"

namespace ringsmith::comm {

// How long a thread may hold its core before it gives way.
struct Patience {
  int spins = 0;                         // polls with a pause between them
  std::chrono::microseconds yielding{};  // then polls with sched_yield between them, then sleep
};

class Host {
 public:
  Host(std::shared_ptr<Bootstrap> bootstrap, const GroupOptions& options);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  ~Host();

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return static_cast<int>(peers_.size()); }
  [[nodiscard]] Control& control(int rank) const { return *peer(rank).control; }
  [[nodiscard]] Control& mine() const { return control(rank_); }
  // Of a rank's segment: layout.hpp.
  [[nodiscard]] std::byte* window(int rank, std::uint64_t round) const {
    return base(rank) + Layout::window(round);
  }
  [[nodiscard]] Lane& lane(int rank, int peer, int index) const {
    return *std::launder(reinterpret_cast<Lane*>(base(rank) + layout_.lane(peer, index)));
  }
  [[nodiscard]] std::byte* slots(int rank, int peer, int index) const {
    return base(rank) + layout_.slots(peer, index);
  }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  // The longest message that is worth sending, the same on all ranks. Among ranks that share memory
  // a slot is to stay in the cache, whatever room it has.
  [[nodiscard]] std::size_t message_bytes() const {
    return all_local() ? kSlotBytes : layout_.slot_bytes();
  }
  [[nodiscard]] std::byte* base(int rank) const { return peer(rank).segment->data(); }
  [[nodiscard]] const std::shared_ptr<Arena>& arena() const { return arena_; }

  // Do all ranks share memory, so that they can read each other's communication memory?
  [[nodiscard]] bool all_local() const { return wires_ == nullptr; }
  [[nodiscard]] std::vector<std::string> describe() const;
  [[nodiscard]] std::vector<int> node_of() const;  // [rank]: shm/mesh.hpp's number
  [[nodiscard]] const std::shared_ptr<Bootstrap>& bootstrap() const { return bootstrap_; }
  // Given to the wires for ranks on other nodes: contents of slots and windows, and counters.
  [[nodiscard]] Bytes sent_between_nodes() const {
    return Bytes(between_nodes_.load(std::memory_order_relaxed));
  }

  // ---- being in a call: what the others will read if something goes wrong ----
  void enter(const Call& call, std::uint64_t sequence, Site site);
  void leave();
  void at_step(std::int64_t step) { mine().board.step.store(step, std::memory_order_relaxed); }

  // If the group fails, its flight recorder goes to a file in this folder. From any thread.
  void keep_flight_in(const std::string& folder);

  // ---- waiting and waking ----
  // Returns when ready() is true; ready() reads counters with seq_cst loads, which pair with
  // publish(). Throws PeerLost, TimeoutError, or what a failed peer reported. for_peer names whom
  // we wait for; ready() may change it as it learns more.
  template <class Ready>
  void wait(const int& for_peer, Ready ready) {
    for (int i = 0; i < patience().spins; ++i) {
      if (ready()) return;
      look_or_pause();
    }
    if (!ready())
      wait_long(
          for_peer, [](void* r) { return (*static_cast<Ready*>(r))(); }, &ready);
  }
  // Stores a counter that others wait for, then wakes those that sleep. This store and the look at
  // `sleeping`, and the sleeper's of both, are seq_cst (release and acquire would not do, which
  // shows on arm64): either the sleeper sees the counter or we see the sleeper.
  void publish(std::atomic<std::uint64_t>& counter, std::uint64_t value) {
    counter.exchange(value, std::memory_order_seq_cst);
    for (int r = 0; r < size(); ++r) tell(r, counter, value);
  }
  void publish_to(int rank, std::atomic<std::uint64_t>& counter, std::uint64_t value) {
    counter.exchange(value, std::memory_order_seq_cst);
    tell(rank, counter, value);
  }
  // The same for a counter that nobody waits for yet: remote ranks may see it later, but before
  // this rank waits for anything.
  void note_to(int rank, std::atomic<std::uint64_t>& counter, std::uint64_t value) {
    if (!on_wire(rank)) return publish_to(rank, counter, value);
    counter.store(value, std::memory_order_relaxed);
    wires_->note(rank, offset_of(&counter), value);
    count(rank, sizeof value);
  }
  // What the next publish() makes readable, for ranks that do not share this memory: bytes of this
  // rank's segment, which stay as they are until the rank has answered for them.
  void expose(int rank, const void* data, std::size_t size) {
    if (!on_wire(rank)) return;
    wires_->write(rank, offset_of(data), static_cast<const std::byte*>(data), size);
    count(rank, size);
  }
  // The same for bytes that stand elsewhere, and may change after the publish(): `place` in the
  // segment is theirs until rank has answered.
  void lend(int rank, const std::byte* data, std::byte* place, std::size_t size) {
    wires_->lend(rank, offset_of(place), data, size, place);
    count(rank, size);
  }
  [[nodiscard]] bool on_wire(int rank) const { return wires_ && peer(rank).link.remote; }
  void expose_to_all(const void* data, std::size_t size) {
    for (int r = 0; r < this->size() && wires_; ++r) expose(r, data, size);
  }
  // One look at what remote ranks have sent, for loops that are not wait().
  void look() {
    if (wires_) wires_->progress();
  }
  // Waits until all that was published is on its way: nobody moves it while this rank computes.
  void flush();
  // May waiting use the core (somebody's thread has nothing else to do), or does it share it with
  // computation? May be called while another thread waits.
  void hold_core(bool hold) { holds_core_.store(hold, std::memory_order_relaxed); }

  // ---- failing; from any thread ----
  // Throws if the group has failed before: a broken group stays broken.
  void check_usable() const;
  [[nodiscard]] bool is_usable() const;
  // Records the failure for the others, marks the group as broken, and throws the kind of error.
  [[noreturn]] void fail(FailureKind kind, int culprit, const std::string& text);
  // The same without the throwing: the next call will. Only the first failure counts.
  void record_failure(FailureKind kind, int culprit, const std::string& text);
  [[nodiscard]] Where where(int peer) const;
  // From now on waiting is vain: whoever is in a call finds it and reports it; report_aborted()
  // does so for a group that is in none.
  void mark_aborted(Site site);
  void report_aborted();
  // " at train.cpp:120", where rank says that it made a call; or nothing.
  [[nodiscard]] std::string at_site(int rank, std::uint64_t site) const;

  // What makes waiting vain: a peer that has failed or is gone.
  struct Trouble {
    FailureKind kind = FailureKind::none;
    int culprit = -1;
    std::string text;
  };
  // Never blocks. A peer that has left the group in good order is trouble only for who waits for
  // it.
  [[nodiscard]] Trouble look_for_trouble(int for_peer) const;
  // Only what peers themselves have reported: a look at memory. Or that this group was aborted.
  [[nodiscard]] Trouble look_for_report() const;
  [[nodiscard]] bool is_gone(int rank) const;  // its process has ended, or left the group
  // What to say when the deadline has passed: who is to blame, and where everybody is. Sets
  // culprit.
  [[nodiscard]] std::string explain_timeout(int for_peer, int& culprit) const;
  [[nodiscard]] std::string wait_for_graph() const;
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }

 private:
  struct Peer {
    PeerLink link;
    std::shared_ptr<Segment> segment;  // or the mirror
    Control* control = nullptr;
  };
  [[nodiscard]] const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Patience& patience() const {
    return holds_core_.load(std::memory_order_relaxed) ? foreground_ : background_;
  }
  static void pause();
  void look_or_pause() {
    if (wires_)
      wires_->progress();
    else
      pause();
  }
  [[nodiscard]] std::size_t offset_of(const void* data) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(data) - base(rank_));
  }
  void tell(int rank, const std::atomic<std::uint64_t>& counter, std::uint64_t value) {
    if (!on_wire(rank)) return wake(rank);
    wires_->publish(rank, offset_of(&counter), value);
    count(rank, sizeof value);
  }
  void count(int rank, std::size_t size) {
    if (peer(rank).link.node != peer(rank_).link.node)
      between_nodes_.fetch_add(size, std::memory_order_relaxed);
  }
  void wake(int rank) {
    if (control(rank).bell.sleeping.load(std::memory_order_seq_cst) != kAwake) ring(rank);
  }
  void ring(int rank);
  void sleep_until_told(bool (*ready)(void*), void* context);
  void commit_slots(Segment& segment) const;
  void speak_before_the_end();
  [[nodiscard]] FlightFile flight_of(int rank) const;
  void write_flight(int lost) const;
  void connect_wires(const GroupOptions& options);
  // Tells remote ranks what this one is doing.
  void show_board();
  void name_peer(int rank, Where& where) const;
  [[nodiscard]] std::string describe_rank(int rank) const;
  [[nodiscard]] WaitForGraph see_all() const;
  void wait_long(const int& for_peer, bool (*ready)(void*), void* context);

  std::shared_ptr<Bootstrap> bootstrap_;
  int rank_;
  std::chrono::milliseconds timeout_;
  Layout layout_;
  std::vector<Peer> peers_;
  std::unique_ptr<Wires> wires_;  // null if all ranks share memory
  std::shared_ptr<Arena> arena_;
  Patience foreground_, background_;
  std::atomic<bool> holds_core_{true};
  std::atomic<std::uint64_t> between_nodes_{0};  // bytes
  int crowded_ = 0;                              // long waits for which yielding is not worth a try
  mutable std::mutex failing_;
  Trouble broken_;  // the first failure of this group, on this rank
  std::atomic<bool> aborted_{false};
  Site aborted_at_;  // written before aborted_
  std::optional<Sites> sites_;
  std::optional<FlightRecorder> flight_;
  std::string group_ = "world", flight_folder_;
  std::vector<FlightFile> flight_files_;   // by rank; empty: keep none
  std::unique_ptr<LastWords> last_words_;  // where the launcher ends survivors
};

[[noreturn]] void throw_failure(FailureKind kind, const std::string& text, const Where& where);

}  // namespace ringsmith::comm
