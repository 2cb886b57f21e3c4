#include "runtime/comm/bootstrap/store/server.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <vector>

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kAcceptsAtOnce = 64;                         // then the others get a turn
constexpr std::size_t kReadAtOnce = std::size_t{1} << 16;  // bytes
constexpr std::chrono::milliseconds kDrainInterval{2};
constexpr std::chrono::milliseconds kAcceptPause{50};
constexpr std::chrono::minutes kLongestSleep{1};

}  // namespace

StoreServer::StoreServer(Secret secret, StoreServerOptions options)
    : secret_(std::move(secret)),
      options_(std::move(options)),
      listener_(store::listen_on(options_.bind, options_.port)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      table_(options_.table) {
  if (!stop_.valid()) throw CommError(std::string("eventfd: ") + std::strerror(errno));
  // The program's signals are for its own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { serve(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

StoreServer::~StoreServer() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

bool StoreServer::drain(std::size_t members, std::chrono::milliseconds timeout) const {
  const Deadline deadline = Deadline::in(timeout);
  while (counters_.members.load() > members) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(kDrainInterval);
  }
  return true;
}

void StoreServer::serve() {
  std::vector<pollfd> entries;
  for (;;) {
    entries.clear();
    entries.push_back({stop_.get(), POLLIN, 0});
    const bool accepting = Clock::now() >= accept_again_;
    entries.push_back({listener_.socket.get(), static_cast<short>(accepting ? POLLIN : 0), 0});
    for (Connection& c : connections_) {
      short events = 0;
      if (c.session.room() > 0) events |= POLLIN;
      if (!c.session.output().empty()) events |= POLLOUT;
      entries.push_back({c.socket.get(), events, 0});
    }
    if (poll(entries.data(), entries.size(), milliseconds_to_sleep()) < 0 && errno != EINTR) return;
    if (entries[0].revents != 0) return;
    std::size_t i = 2;
    for (Connection& c : connections_) exchange(c, entries[i++].revents);
    while (advance_all()) {
    }
    sweep();
    if (entries[1].revents != 0) accept_all();
  }
}

void StoreServer::exchange(Connection& c, short events) {
  if ((events & (POLLERR | POLLNVAL)) != 0) c.socket = Descriptor();
  if (c.socket.valid() && (events & (POLLIN | POLLHUP)) != 0 && c.session.room() > 0) {
    std::array<char, kReadAtOnce> block{};
    const std::size_t most = std::min(block.size(), c.session.room());
    const ssize_t n = recv(c.socket.get(), block.data(), most, MSG_DONTWAIT);
    if (n > 0)
      c.session.receive({block.data(), static_cast<std::size_t>(n)});
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
      c.socket = Descriptor();
  } else if ((events & POLLHUP) != 0) {
    c.socket = Descriptor();
  }
}

// Lets every session do what it can, and sends what it has to say.
bool StoreServer::advance_all() {
  bool progress = false;
  const Clock::time_point now = Clock::now();
  for (Connection& c : connections_) {
    if (!c.socket.valid()) continue;
    progress = c.session.advance(now) || progress;
    if (c.session.member() && !c.counted) {
      c.counted = true;
      ++counters_.members;
      --counters_.strangers;
    }
    std::string& out = c.session.output();
    if (out.empty()) continue;
    const ssize_t n = send(c.socket.get(), out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      out.erase(0, static_cast<std::size_t>(n));
      progress = progress || out.empty();  // the next request may be looked at
    } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
      c.socket = Descriptor();
    }
  }
  return progress;
}

// Takes away what is closed or has to be; wills may wake those who wait.
void StoreServer::sweep() {
  for (auto c = connections_.begin(); c != connections_.end();) {
    if (c->socket.valid() && !c->session.closing()) {
      ++c;
      continue;
    }
    c->session.leave();
    if (c->counted) {
      --counters_.members;
    } else {
      --counters_.strangers;
      ++counters_.refused;
    }
    c = connections_.erase(c);
  }
  while (advance_all()) {
  }
}

void StoreServer::accept_all() {
  const auto drop_oldest_stranger = [this] {
    const auto oldest = std::find_if(connections_.begin(), connections_.end(),
                                     [](const Connection& c) { return !c.counted; });
    if (oldest == connections_.end()) return false;
    connections_.erase(oldest);
    --counters_.strangers;
    ++counters_.refused;
    return true;
  };
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    Descriptor socket(
        accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      if (errno == EINTR || errno == ECONNABORTED) continue;
      // No descriptors or no memory: make room; where there is none to make, leave the rest in the
      // kernel's queue for a bit.
      if (drop_oldest_stranger()) continue;
      accept_again_ = Clock::now() + kAcceptPause;
      return;
    }
    if (counters_.strangers >= options_.most_strangers) static_cast<void>(drop_oldest_stranger());
    store::tune(socket);
    connections_.push_back(
        {std::move(socket), store::Session(table_, secret_, Clock::now(), options_.handshake)});
    ++counters_.accepted;
    ++counters_.strangers;
  }
}

int StoreServer::milliseconds_to_sleep() const {
  Clock::time_point next = Clock::now() + kLongestSleep;
  if (accept_again_ > Clock::now()) next = std::min(next, accept_again_);
  for (const Connection& c : connections_)
    if (const auto alarm = c.session.alarm(); alarm) next = std::min(next, *alarm);
  return Deadline(next).poll_ms();
}

}  // namespace ringsmith::comm
