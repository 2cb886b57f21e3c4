#include "runtime/parallel/stop_request.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <span>
#include <time.h>

#include "runtime/base/process.hpp"
#include "runtime/comm/failure/last_words.hpp"

namespace ringsmith {

namespace {

// These are lock-free, because the signal handler uses them.
std::atomic<bool> request_expected{false};
std::atomic<std::int64_t> requested_at_ms{0};  // by CLOCK_MONOTONIC; 0: no request
static_assert(decltype(requested_at_ms)::is_always_lock_free);

std::int64_t monotonic_ms() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1000 + t.tv_nsec / 1'000'000;
}

void on_stop_signal(int signal) {
  const int error = errno;
  // mpirun and ringrun also send SIGTERM when another rank has failed.
  if (signal == SIGTERM) comm::LastWords::say_if_lost();
  std::int64_t first = 0;
  const std::int64_t now = std::max<std::int64_t>(monotonic_ms(), 1);
  if (!requested_at_ms.compare_exchange_strong(first, now) &&
      now - first > StopRequest::kSameRequest.count()) {
    ::signal(signal, SIG_DFL);
    raise(signal);  // takes effect when the handler returns
  }
  errno = error;
}

}  // namespace

StopRequest::StopRequest() {
  require(!request_expected.exchange(true), "StopRequest: this process already has one");
  requested_at_ms = 0;
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : kSignals) sigaddset(&action.sa_mask, signal);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (!is_ignored(kSignals[i])) sigaction(kSignals[i], &action, nullptr);
  }
}

StopRequest::~StopRequest() {
  request_expected = false;
  if (done_) return;
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

bool StopRequest::here() const noexcept { return requested_at_ms != 0; }

bool StopRequest::agreed(comm::ProcessGroup& group) const {
  std::int32_t any = here() ? 1 : 0;
  group.all_reduce(std::span(&any, 1), comm::ReduceOp::max);
  return any != 0;
}

void StopRequest::throw_if_agreed(comm::ProcessGroup& group) const {
  if (!agreed(group)) return;
  throw Preempted(group.rank() == 0 ? "a signal asked the ranks to stop, and all have stopped"
                                    : "");
}

}  // namespace ringsmith
