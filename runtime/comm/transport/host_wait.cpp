// Host: waiting, waking, and what makes waiting vain.
#include <climits>
#include <linux/futex.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "runtime/comm/failure/wait_for_graph.hpp"
#include "runtime/comm/transport/host.hpp"
#include "runtime/comm/transport/shm/greeting.hpp"

namespace ringsmith::comm {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr milliseconds kCheckInterval{2};  // between two looks at the peers' health while waiting
constexpr milliseconds kShowInterval{25};  // between two showings of the board to remote ranks

// Ranks that share cores yield to each other within microseconds. A yield that takes longer has
// given the core to a program that does not wait for us: then sleeping is better, because who
// sleeps is run soon after being woken, and who yields goes to the end of the line.
constexpr microseconds kSlowYield{500};
constexpr int kWaitsWithoutYield = 256;  // then yielding gets another try

}  // namespace

void Host::ring(int rank) {
  Doorbell& bell = control(rank).bell;
  bell.rings.fetch_add(1);
  if (bell.sleeping.load() == kOnSockets) {
    const char byte = 0;  // a full socket will wake it as well
    (void)send(peer(rank).link.socket.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    return;
  }
  syscall(SYS_futex, &bell.rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Host::wait_long(const int& for_peer, bool (*ready)(void*), void* context) {
  Control& me = mine();
  if (crowded_ > 0) --crowded_;
  const auto start = Clock::now();
  me.board.waited.store(0, std::memory_order_relaxed);
  auto next_check = start + kCheckInterval, next_show = start + kShowInterval;
  while (!ready(context)) {
    me.board.waits_for.store(for_peer, std::memory_order_relaxed);
    if (wires_) {
      wires_->progress();
      if (ready(context)) break;
    }
    const auto now = Clock::now();
    if (now >= next_check) {
      Trouble trouble = look_for_trouble(for_peer);
      const auto waited = std::chrono::duration_cast<milliseconds>(now - start).count();
      me.board.waited.store(static_cast<std::uint32_t>(waited), std::memory_order_relaxed);
      if (trouble.kind == FailureKind::none && now - start >= timeout_) {
        trouble.kind = FailureKind::timeout;
        trouble.text = explain_timeout(for_peer, trouble.culprit);
      }
      // Looked at after the trouble was seen: a peer may have done its part and then left.
      if (ready(context)) break;
      if (trouble.kind != FailureKind::none) fail(trouble.kind, trouble.culprit, trouble.text);
      next_check = now + kCheckInterval;
    }
    if (wires_ && now >= next_show) {
      show_board();
      next_show = now + kShowInterval;
    }
    if (crowded_ == 0 && now - start < patience().yielding) {
      sched_yield();
      if (Clock::now() - now > kSlowYield) crowded_ = kWaitsWithoutYield;
      continue;
    }
    sleep_until_told(ready, context);
  }
  me.board.waits_for.store(-1, std::memory_order_relaxed);
  if (next_show > start + kShowInterval) show_board();  // the one shown says that we wait
}

void Host::sleep_until_told(bool (*ready)(void*), void* context) {
  Doorbell& bell = mine().bell;
  const std::uint32_t seen = bell.rings.load();
  bell.sleeping.store(wires_ ? kOnSockets : kOnFutex);
  if (!ready(context)) {
    const timespec limit{0, std::chrono::nanoseconds(kCheckInterval).count()};
    if (wires_)
      wires_->sleep(kCheckInterval);
    else
      syscall(SYS_futex, &bell.rings, FUTEX_WAIT, seen, &limit, nullptr, 0);
  }
  bell.sleeping.store(kAwake);
}

void Host::flush() {
  if (!wires_) return;
  int to_whom = -1;
  wait(to_whom, [&] { return wires_->flushed(to_whom); });
}

void Host::show_board() {
  if (!wires_) return;
  expose_to_all(&mine().board, sizeof(Board));
  wires_->progress();
}

// Looks at all peers, not only at the one waited for: that one may itself wait for the culprit.
// Reports come first: a rank that failed and left tells whose fault it was.
Host::Trouble Host::look_for_trouble(int for_peer) const {
  std::vector<int> gone;
  for (int r = 0; r < size(); ++r)
    if (is_gone(r)) gone.push_back(r);
  if (Trouble trouble = look_for_report(); trouble.kind != FailureKind::none) return trouble;
  for (const int r : gone) {
    const std::uint32_t left = control(r).board.left.load();
    if (left != kStays && r != for_peer) continue;  // it had done its part
    // It may have gone before it was in the group, because of another one.
    const int blamed =
        on_wire(r) ? -1 : overhear_farewell(peer(r).link.socket.get(), peer(rank_).link.word);
    if (blamed >= 0 && blamed < size() && blamed != rank_)
      return {FailureKind::peer_lost, blamed,
              describe_rank(blamed) + " is gone since before all ranks were connected: rank " +
                  std::to_string(r) + " left because of it"};
    const std::string how = left == kInOrder     ? "has left the group"
                            : left == kThrownOut ? "has left the group, thrown out by an exception"
                            : on_wire(r)         ? "is gone: " + wires_->broken(r)
                                                 : "is gone: its process has died";
    return {FailureKind::peer_lost, r, describe_rank(r) + " " + how};
  }
  return {};
}

bool Host::is_gone(int rank) const {
  if (rank == rank_) return false;
  return on_wire(rank) ? !wires_->broken(rank).empty() : hung_up(peer(rank).link.socket);
}

Host::Trouble Host::look_for_report() const {
  if (aborted_.load())
    return {FailureKind::aborted, rank_,
            "rank " + std::to_string(rank_) + " called abort() at " + text_of(aborted_at_)};
  for (int r = 0; r < size(); ++r) {
    const Failure& failure = control(r).failure;
    const FailureKind kind = failure.kind.load(std::memory_order_acquire);
    if (r == rank_ || kind == FailureKind::none) continue;
    Trouble trouble{kind, failure.culprit.load(std::memory_order_relaxed), ""};
    for (const auto& c : failure.text) {
      const char letter = c.load(std::memory_order_relaxed);
      if (letter == '\0') break;
      trouble.text += letter;
    }
    return trouble;
  }
  return {};
}

// "rank 2 (pid 4711 on host-a)"
std::string Host::describe_rank(int rank) const {
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(peer(rank).link.pid) + " on " +
         peer(rank).link.host + ")";
}

std::string Host::explain_timeout(int for_peer, int& culprit) const {
  const WaitForGraph graph = see_all();
  std::string text =
      "waited " + std::to_string(timeout_.count()) + " ms for rank " + std::to_string(for_peer);
  culprit = graph.culprit_from(for_peer);
  if (culprit < 0) {  // a circle: each waits for the next
    culprit = for_peer;
    return text + ". " + graph.describe();
  }
  text += ". To blame: " + describe_rank(culprit) + ", " + graph.offence_of(culprit);
  if (peer(culprit).link.same_machine) text += state_of_process(peer(culprit).link.pid);
  return text + ". " + graph.describe();
}

WaitForGraph Host::see_all() const {
  std::vector<Sight> sights;
  sights.reserve(peers_.size());
  for (int r = 0; r < size(); ++r)
    sights.push_back({&control(r).board, on_wire(r) ? control(r).arrivals : nullptr,
                      control(r).sites, peer(r).link.same_machine && is_stopped(peer(r).link.pid)});
  return WaitForGraph(sights);
}

std::string Host::wait_for_graph() const { return see_all().describe(); }

}  // namespace ringsmith::comm
