// The ranks of a group as seen by one of them: their memory (peer_memory.hpp), what goes wrong
// (peer_failures.hpp), and, here, waiting for counters that they write.
//
// Waiting. First spin (a peer on another core answers within a microsecond), then yield (with more
// ranks than cores the peer may need this core), then sleep on a futex until the peer rings. While
// yielding and sleeping, look every couple of milliseconds for what would make the wait endless:
// a peer that is gone (its socket has closed), a peer that has failed, the deadline.
#pragma once

#include "runtime/comm/transport/peer_failures.hpp"

namespace ringsmith::comm {

// How long a thread may hold its core before it gives way.
struct Patience {
  int spins = 0;                         // polls with a pause between them
  std::chrono::microseconds yielding{};  // then polls with sched_yield between them, then sleep
};

class Peers : public PeerFailures {
 public:
  Peers(std::shared_ptr<Bootstrap> bootstrap, const GroupOptions& options);

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
  // Waits until all that was published is on its way: nobody moves it while this rank computes.
  void flush();
  // May waiting use the core (somebody's thread has nothing else to do), or does it share it with
  // computation? May be called while another thread waits.
  void hold_core(bool hold) { holds_core_.store(hold, std::memory_order_relaxed); }

 private:
  [[nodiscard]] const Patience& patience() const {
    return holds_core_.load(std::memory_order_relaxed) ? foreground_ : background_;
  }
  [[nodiscard]] bool oversubscribed() const;
  static void pause();
  void look_or_pause() {
    if (network_)
      network_->progress();
    else
      pause();
  }
  void wait_long(const int& for_peer, bool (*ready)(void*), void* context);
  void sleep_until_told(bool (*ready)(void*), void* context);

  Patience foreground_, background_;
  std::atomic<bool> holds_core_{true};
  int crowded_ = 0;  // long waits for which yielding is not worth a try
};

}  // namespace ringsmith::comm
