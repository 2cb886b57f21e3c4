// The ranks of a group as seen by one of them, in three parts: their memory (segments.hpp), their
// health (health.hpp) and, here, waiting for their counters.
//
// A wait first spins: a peer on another core answers within a microsecond. Then it yields, because
// with more ranks than cores the peer may need this core. Then it sleeps until a peer rings: on a
// futex, or on the sockets if the group has remote ranks. From the first yield on, it checks every
// 2 ms whether a peer is gone or has failed, or the deadline has passed.
//
// The tracer records each wait of 20 us or more as a span, with the awaited rank and whether it is
// on this node. A span does not tell a late peer from a slow network.
#pragma once

#include "runtime/base/tracer.hpp"
#include "runtime/comm/transport/health.hpp"

namespace ringsmith::comm {

// Names of spans. Their argument is the rank that was waited for last.
inline constexpr const char* kWaitWithinNode = "wait for a rank of this node";
inline constexpr const char* kWaitBetweenNodes = "wait for a rank of another node";

struct SpinLimits {
  int spins = 0;                         // number of polls with a pause between them
  std::chrono::microseconds yielding{};  // time of polls with sched_yield() before the first sleep
};

class PeerWaiter {
 public:
  PeerWaiter(Segments& segments, Health& health);

  // Returns when ready() is true; ready() reads counters with seq_cst loads, which pair with
  // publish(). Throws PeerLost, TimeoutError, Aborted, CommError, or the error of a failed peer.
  // for_peer is the rank that this one waits for; ready() may change it as it learns more.
  template <class Ready>
  void wait(const int& for_peer, Ready ready) {
    if (ready()) return;
    const std::int64_t begin = trace::enabled() ? trace::now_ns() : 0;
    for (int i = 0; i < spin_limits().spins; ++i) {
      const int last = for_peer;
      look_or_pause();
      if (ready()) return trace_wait(last, begin);
    }
    const int last = wait_long(
        for_peer, [](void* r) { return (*static_cast<Ready*>(r))(); }, &ready);
    trace_wait(last, begin);
  }
  // Blocks until all published data has been handed to the network, because no thread would send it
  // while this rank computes.
  void flush() {
    if (network_) flush_network();
  }
  // If `hold` is false, waits share the core with computation, so they do not spin and soon sleep.
  // May be called while another thread waits.
  void hold_core(bool hold) { holds_core_.store(hold, std::memory_order_relaxed); }

 private:
  [[nodiscard]] const SpinLimits& spin_limits() const {
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
  // Returns the peer that was waited for last.
  int wait_long(const int& for_peer, bool (*ready)(void*), void* context);
  void trace_wait(int for_peer, std::int64_t begin) const {
    if (begin != 0) trace_wait_until_now(for_peer, begin);
  }
  void trace_wait_until_now(int for_peer, std::int64_t begin) const;
  void sleep_until_told(bool (*ready)(void*), void* context);
  void flush_network();

  Segments& segments_;
  Health& health_;
  NetworkTransport* const network_;  // null if all ranks share memory
  SpinLimits foreground_, background_;
  std::atomic<bool> holds_core_{true};
  int crowded_ = 0;  // number of long waits, this one included, that do not yield
};

class Peers {
 public:
  // Collective.
  Peers(std::shared_ptr<Bootstrap> bootstrap, const GroupOptions& options)
      : segments_(std::move(bootstrap), options),
        health_(segments_, options),
        waiter_(segments_, health_) {}

  [[nodiscard]] Segments& segments() { return segments_; }
  [[nodiscard]] const Segments& segments() const { return segments_; }
  [[nodiscard]] Health& health() { return health_; }
  [[nodiscard]] PeerWaiter& waiter() { return waiter_; }

  [[nodiscard]] int rank() const { return segments_.rank(); }
  [[nodiscard]] int size() const { return segments_.size(); }
  template <class Ready>
  void wait(const int& for_peer, Ready ready) {
    waiter_.wait(for_peer, std::move(ready));
  }

 private:
  Segments segments_;
  Health health_;
  PeerWaiter waiter_;
};

}  // namespace ringsmith::comm
