// The ranks of one host as seen by one of them: everybody's shared memory, waiting for counters in
// it, and the ways in which waiting can fail.
//
// Waiting. First spin (a peer on another core answers within a microsecond), then yield (with more
// ranks than cores the peer may need this core), then sleep on a futex until the peer rings. While
// yielding and sleeping, look every couple of milliseconds for what would make the wait endless:
// a peer that is gone (its socket has closed), a peer that has failed, the deadline.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/comm/call.hpp"
#include "runtime/comm/transport/arena.hpp"
#include "runtime/comm/transport/control.hpp"
#include "runtime/comm/transport/last_words.hpp"
#include "runtime/comm/transport/mesh.hpp"

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
  // Staging memory of a rank for small messages, kWindow bytes for each of two rounds.
  [[nodiscard]] std::byte* window(int rank, std::uint64_t round) const;
  // What `rank` writes of its FIFO number `index` with `peer`, and the slots it fills for the peer.
  [[nodiscard]] Lane& lane(int rank, int peer, int index) const;
  [[nodiscard]] std::byte* slots(int rank, int peer, int index) const;
  [[nodiscard]] std::byte* base(int rank) const { return peer(rank).segment->data(); }
  [[nodiscard]] const std::shared_ptr<Arena>& arena() const { return arena_; }

  static constexpr std::size_t kWindow = std::size_t{256} << 10;  // bytes

  // ---- being in a call: what the others will read if something goes wrong ----
  void enter(const Call& call, std::uint64_t sequence);
  void leave();
  void at_step(std::int64_t step) { mine().board.step.store(step, std::memory_order_relaxed); }

  // ---- waiting and waking ----
  // Returns when ready() is true; ready() reads counters with seq_cst loads, which pair with
  // publish(). Throws PeerLost, TimeoutError, or what a failed peer reported. for_peer names whom
  // we wait for; ready() may change it as it learns more.
  template <class Ready>
  void wait(const int& for_peer, Ready ready) {
    for (int i = 0; i < patience().spins; ++i) {
      if (ready()) return;
      pause();
    }
    if (!ready())
      wait_long(
          for_peer, [](void* r) { return (*static_cast<Ready*>(r))(); }, &ready);
  }
  // Stores a counter that others wait for, then wakes those of them that sleep. A full barrier
  // stands between the store and the look at `sleeping`: either the sleeper sees the counter or we
  // see the sleeper.
  void publish(std::atomic<std::uint64_t>& counter, std::uint64_t value) {
    counter.exchange(value, std::memory_order_seq_cst);
    for (int r = 0; r < size(); ++r) wake(r);
  }
  void publish_to(int rank, std::atomic<std::uint64_t>& counter, std::uint64_t value) {
    counter.exchange(value, std::memory_order_seq_cst);
    wake(rank);
  }
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

  // What makes waiting vain: a peer that has failed or is gone.
  struct Trouble {
    FailureKind kind = FailureKind::none;
    int culprit = -1;
    std::string text;
  };
  // Never blocks. A peer that has left the group in good order is trouble only for who waits for
  // it.
  [[nodiscard]] Trouble look_for_trouble(int for_peer) const;
  // Only what peers themselves have reported: a look at memory.
  [[nodiscard]] Trouble look_for_report() const;
  [[nodiscard]] bool is_gone(int rank) const {  // its process has ended, or left the group
    return rank != rank_ && hung_up(peer(rank).link.socket);
  }
  [[nodiscard]] std::string wait_for_graph() const;
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }

 private:
  struct Peer {
    PeerLink link;
    std::shared_ptr<Segment> segment;
    Control* control = nullptr;
  };
  [[nodiscard]] const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Patience& patience() const {
    return holds_core_.load(std::memory_order_relaxed) ? foreground_ : background_;
  }
  static void pause();
  void wake(int rank) {
    if (control(rank).bell.sleeping.load(std::memory_order_seq_cst) != 0) ring(rank);
  }
  void ring(int rank);
  void wait_long(const int& for_peer, bool (*ready)(void*), void* context);

  std::shared_ptr<Bootstrap> bootstrap_;
  int rank_;
  std::chrono::milliseconds timeout_;
  std::vector<Peer> peers_;
  std::shared_ptr<Arena> arena_;
  std::unique_ptr<LastWords> last_words_;  // where the launcher ends survivors
  Patience foreground_, background_;
  std::atomic<bool> holds_core_{true};
  int crowded_ = 0;  // long waits for which yielding is not worth a try
  mutable std::mutex failing_;
  Trouble broken_;  // the first failure of this group, on this rank
};

[[noreturn]] void throw_failure(FailureKind kind, const std::string& text, const Where& where);

}  // namespace ringsmith::comm
