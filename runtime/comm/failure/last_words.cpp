#include "runtime/comm/failure/last_words.hpp"

#include <errno.h>  // program_invocation_short_name
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/error.hpp"
#include "runtime/comm/failure/line.hpp"

namespace ringsmith::comm {

namespace {

std::atomic<const LastWords*> current{nullptr};
// When the rank found the trouble itself, in ns; the group may be gone when its error is printed.
std::atomic<std::int64_t> said_at{0};
constexpr std::int64_t kTimeToSay = 500'000'000;  // ns; mpirun sends SIGKILL after a second

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Everything below runs in a signal handler: no allocation, no locks, no stdio.
void copy_text(const Failure& failure, char* out) {
  std::size_t i = 0;
  for (; i + 1 < kFailureText; ++i) {
    out[i] = failure.text[i].load(std::memory_order_relaxed);
    if (out[i] == '\0') break;
  }
  out[i] = '\0';
}

}  // namespace

void look_around(int signal) {
  // The error may be on its way out, and mpirun sends more than one SIGTERM.
  if (said_at.load() != 0 && now_ns() - said_at.load() < kTimeToSay) return;
  const LastWords* const words = current.load();
  if (words != nullptr) {
    Line line;
    line << program_invocation_short_name << ": error: ";
    for (const LastWords::Peer& peer : words->peers_) {
      if (peer.control->failure.kind.load(std::memory_order_acquire) == FailureKind::none) continue;
      char text[kFailureText];
      copy_text(peer.control->failure, text);
      words->write_flights(peer);
      (line << text << " [rank " << words->rank_ << ", reported by rank " << peer.rank << "]\n")
          .print();
      _exit(static_cast<int>(ExitCode::communication));
    }
    for (const LastWords::Peer& peer : words->peers_) {
      pollfd entry{peer.socket, POLLRDHUP, 0};
      if (poll(&entry, 1, 0) <= 0 || peer.control->board.left.load() != 0) continue;
      words->write_flights(peer);
      (line << "rank " << peer.rank << " (pid " << peer.pid << " on " << peer.host.c_str()
            << ") is gone: " << (peer.remote ? "its connection has closed" : "its process has died")
            << " [rank " << words->rank_ << "]\n")
          .print();
      _exit(static_cast<int>(ExitCode::communication));
    }
  }
  ::signal(signal, SIG_DFL);
  raise(signal);
}

LastWords::LastWords(int rank, std::vector<Peer> peers) : rank_(rank), peers_(std::move(peers)) {
  const LastWords* expected = nullptr;
  if (!current.compare_exchange_strong(expected, this)) return;  // one group is enough
  struct sigaction action {};
  if (sigaction(SIGTERM, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = look_around;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
}

LastWords::~LastWords() {
  const LastWords* expected = this;
  current.compare_exchange_strong(expected, nullptr);
}

void LastWords::write_flights(const Peer& peer) const {
  const auto* const files = flights_.load();
  if (files == nullptr) return;
  (void)(*files)[static_cast<std::size_t>(rank_)].write(true);
  if (!peer.remote) (void)(*files)[static_cast<std::size_t>(peer.rank)].write(false);
}

void LastWords::already_said() { said_at = now_ns(); }

}  // namespace ringsmith::comm
