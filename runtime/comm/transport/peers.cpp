#include "runtime/comm/transport/peers.hpp"

#include <algorithm>
#include <sched.h>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ringsmith::comm {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr milliseconds kCheckInterval{2};   // between two checks of the peers while waiting
constexpr milliseconds kTellElsewhere{50};  // longer waits are reported to the other groups
constexpr milliseconds kShowInterval{25};   // between two sends of the board to remote ranks

// Among ranks that share cores, a yield takes microseconds. A yield that takes longer has given the
// core to another program. In that case, sleeping is better: a thread runs soon after it is woken,
// whereas a yielding thread goes to the end of the run queue.
constexpr microseconds kSlowYield{500};
constexpr int kWaitsWithoutYield = 256;  // after these, yielding is tried again

constexpr std::int64_t kTracedWait = 20'000;  // ns; shorter waits would fill the tracer's ring

}  // namespace

PeerWaiter::PeerWaiter(Segments& segments, Health& health)
    : segments_(segments), health_(health), network_(segments.network()) {
  // Spin only if each rank has its own core.
  foreground_ =
      oversubscribed() ? SpinLimits{0, microseconds(1000)} : SpinLimits{4000, microseconds(2000)};
  background_ = {0, microseconds(50)};
}

// True if this machine has more ranks of the group than CPUs that they may run on.
bool PeerWaiter::oversubscribed() const {
  std::string any;
  int ranks = 0;
  for (int r = 0; r < segments_.size(); ++r) {
    const PeerLink& link = segments_.link(r);
    if (!link.same_machine) continue;
    ++ranks;
    any.resize(std::max(any.size(), link.cpus.size()), '0');
    for (std::size_t c = 0; c < link.cpus.size(); ++c)
      if (link.cpus[c] == '1') any[c] = '1';
  }
  return std::count(any.begin(), any.end(), '1') < ranks;
}

void PeerWaiter::pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb" : : : "memory");  // `yield` is a no-op on cores with one thread
#endif
}

int PeerWaiter::wait_long(const int& for_peer, bool (*ready)(void*), void* context) {
  Control& me = segments_.mine();
  if (crowded_ > 0) --crowded_;
  const auto start = Clock::now();
  me.board.waited.store(0, std::memory_order_relaxed);
  auto next_check = start + kCheckInterval, next_show = start + kShowInterval;
  int last = for_peer;
  struct Telling {
    Health& health;
    bool told = false;
    void tell() {
      if (!std::exchange(told, true)) health.tell_other_groups(true);
    }
    ~Telling() {
      if (told) health.tell_other_groups(false);
    }
  } others{health_};
  while (!ready(context)) {
    last = for_peer;
    me.board.waits_for.store(last, std::memory_order_relaxed);
    if (network_) {
      network_->progress();
      if (ready(context)) break;
    }
    const auto now = Clock::now();
    if (now >= next_check) {
      Health::Failed failure = health_.look_for_failure(for_peer);
      const auto waited = std::chrono::duration_cast<milliseconds>(now - start).count();
      me.board.waited.store(static_cast<std::uint32_t>(waited), std::memory_order_relaxed);
      if (failure.kind == FailureKind::none && now - start >= health_.timeout()) {
        failure.kind = FailureKind::timeout;
        failure.text = health_.explain_timeout(for_peer, failure.culprit);
      }
      // Before it left, the peer may have published the awaited counter.
      if (ready(context)) break;
      if (failure.kind != FailureKind::none)
        health_.fail(failure.kind, failure.culprit, failure.text);
      if (now - start >= kTellElsewhere) others.tell();
      next_check = now + kCheckInterval;
    }
    if (network_ && now >= next_show) {
      health_.show_board();
      next_show = now + kShowInterval;
    }
    if (crowded_ == 0 && now - start < spin_limits().yielding) {
      sched_yield();
      if (Clock::now() - now > kSlowYield) crowded_ = kWaitsWithoutYield;
      continue;
    }
    sleep_until_told(ready, context);
  }
  me.board.waits_for.store(-1, std::memory_order_relaxed);
  if (next_show > start + kShowInterval)
    health_.show_board();  // remote ranks still see the board of a waiting rank
  return last;
}

void PeerWaiter::trace_wait_until_now(int for_peer, std::int64_t begin) const {
  const std::int64_t end = trace::now_ns();
  if (for_peer < 0 || end - begin < kTracedWait) return;
  const bool same_node = segments_.link(for_peer).node == segments_.link(segments_.rank()).node;
  trace::record(same_node ? kWaitWithinNode : kWaitBetweenNodes, trace::Category::wait, begin, end,
                {"rank", for_peer});
}

void PeerWaiter::sleep_until_told(bool (*ready)(void*), void* context) {
  Doorbell& bell = segments_.mine().bell;
  bell.sleep_unless([&] { return ready(context); }, network_ ? kOnSockets : kOnFutex,
                    [&](std::uint32_t seen) {
                      if (network_)
                        network_->sleep(kCheckInterval);
                      else
                        bell.sleep_on_futex(seen, kCheckInterval);
                    });
}

void PeerWaiter::flush_network() {
  int to_whom = -1;
  wait(to_whom, [&] { return network_->flushed(to_whom); });
}

}  // namespace ringsmith::comm
