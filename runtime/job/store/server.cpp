#include "runtime/job/store/server.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"
#include "runtime/job/exchange.hpp"

namespace ringsmith::comm {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kAcceptsAtOnce = 128;                        // so that other connections get a turn
constexpr std::size_t kReadAtOnce = std::size_t{1} << 16;  // bytes
constexpr std::chrono::milliseconds kDrainInterval{2};
constexpr std::chrono::milliseconds kAcceptPause{50};
constexpr std::chrono::minutes kLongestSleep{1};
constexpr int kRoundsOfMeeting = 8;  // upper bound on the all_gathers of a group's bootstrap

template <class Origin>
Origin origin_of(const sockaddr_storage& address) {
  Origin out{};
  if (address.ss_family == AF_INET6) {
    const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&six))
      std::memcpy(out.data(), six.s6_addr + 12, 4);
    else
      std::memcpy(out.data(), six.s6_addr, 8);
  } else {
    std::memcpy(out.data(), &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
  }
  return out;
}

}  // namespace

StoreServer::StoreServer(Secret secret, StoreServerOptions options, Descriptor door)
    : secret_(std::move(secret)),
      options_(std::move(options)),
      listener_(tcp::listen_on(options_.bind, options_.port, options_.chosen_by)),
      door_(std::move(door)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      table_(options_.table),
      counted_(options_.quorums ? static_cast<std::size_t>(options_.quorums->world) : 0) {
  if (!stop_.valid()) throw_errno("eventfd", errno);
  if (options_.quorums) coordinator_.emplace(*options_.quorums);
  // The new thread inherits the mask, so only the program's own threads handle signals.
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

bool StoreServer::drain(std::size_t members, std::chrono::milliseconds timeout,
                        std::size_t joined) const {
  const Deadline deadline = Deadline::in(timeout);
  while (counters_.joined.load() < joined || counters_.members.load() > members) {
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
    entries.push_back({door_.get(), POLLIN, 0});
    for (ClientConnection& c : connections_) {
      short events = 0;
      if (c.session.room() > 0) events |= POLLIN;
      if (!c.session.output().empty()) events |= POLLOUT;
      entries.push_back({c.socket.get(), events, 0});
    }
    if (poll(entries.data(), entries.size(), milliseconds_to_sleep()) < 0 && errno != EINTR) return;
    if (entries[0].revents != 0) return;
    std::size_t i = 3;
    for (ClientConnection& c : connections_) exchange(c, entries[i++].revents);
    while (advance_all()) {
    }
    sweep();
    look_at_quorum();
    if (entries[2].revents != 0) let_in_by_door(entries[2].revents);
    if (entries[1].revents != 0) accept_all();
  }
}

void StoreServer::exchange(ClientConnection& c, short events) {
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

// Advances every session once and sends its output. True if there may be more to do.
bool StoreServer::advance_all() {
  bool progress = false;
  const Clock::time_point now = Clock::now();
  for (ClientConnection& c : connections_) {
    if (!c.socket.valid()) continue;
    progress = c.session.advance(now) || progress;
    if (c.session.member() && c.standing != Standing::member) {
      if (c.standing == Standing::stranger) no_stranger_any_more(c);
      c.standing = Standing::member;
      ++counters_.members;
      ++counters_.joined;  // last: a thread that waits for `joined` must find `members` updated
    }
    std::string& out = c.session.output();
    if (out.empty()) continue;
    const ssize_t n = send(c.socket.get(), out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      out.erase(0, static_cast<std::size_t>(n));
      progress = progress || out.empty();  // the session may handle its next request
    } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
      c.socket = Descriptor();
    }
  }
  return progress;
}

// Removes connections that are closed or must be closed. Their wills may complete other sessions'
// waits.
void StoreServer::sweep() {
  for (auto c = connections_.begin(); c != connections_.end();) {
    if (c->socket.valid() && !c->session.closing()) {
      ++c;
      continue;
    }
    c->session.leave(Clock::now());
    if (c->standing == Standing::member) {
      --counters_.members;
    } else {
      if (c->standing == Standing::stranger) no_stranger_any_more(*c);
      ++counters_.refused;
    }
    c = connections_.erase(c);
  }
  while (advance_all()) {
  }
}

// A new quorum removes the keys of earlier quorums. None of these keys is the new quorum's: the
// server has not read from its members since it announced the quorum.
void StoreServer::look_at_quorum() {
  if (!coordinator_) return;
  if (coordinator_->quorum() != counters_.quorum) table_.remove_all(store::kQuorumKeys);
  counters_.quorum = coordinator_->quorum();
  // If a member has left the quorum, makes the exchanges of the quorum's group fail. Otherwise
  // members that are still forming the group would wait for that member until their deadline.
  for (const auto& member : coordinator_->take_given_up()) {
    if (member.quorum != coordinator_->quorum()) continue;
    const std::string prefix = store::kQuorumKeys + std::to_string(member.quorum);
    for (int round = 0; round < kRoundsOfMeeting; ++round) {
      const LossNote note = note_loss(prefix, round, member.place, member.text);
      try {
        table_.compare_and_swap(note.key, "", note.value);
      } catch (const UsageError&) {  // the table is full, so the members wait until their deadline
      }
    }
  }
  while (advance_all()) {
  }
  for (std::size_t r = 0; r < counted_.size(); ++r) counted_[r] = coordinator_->counted()[r];
  counters_.joiners = coordinator_->joiners();
  counters_.over = coordinator_->over();
  counters_.failed = !coordinator_->failure().empty();
  for (const int rank : coordinator_->take_silent_ranks())
    if (options_.on_silent) options_.on_silent(rank);
}

void StoreServer::no_stranger_any_more(const ClientConnection& c) {
  --counters_.strangers;
  const auto from = strangers_from_.find(c.origin);
  if (--from->second == 0) strangers_from_.erase(from);
}

bool StoreServer::drop_a_stranger() {
  const auto most =
      std::ranges::max_element(strangers_from_, {}, [](const auto& from) { return from.second; });
  if (most == strangers_from_.end()) return false;
  const Origin origin = most->first;
  const auto oldest = std::ranges::find_if(connections_, [&](const auto& c) {
    return c.standing == Standing::stranger && c.origin == origin;
  });
  no_stranger_any_more(*oldest);
  connections_.erase(oldest);
  ++counters_.refused;
  return true;
}

void StoreServer::admit(Descriptor socket, Standing standing, Origin origin) {
  connections_.push_back({std::move(socket),
                          store::Session(table_, secret_, Clock::now(), options_.handshake,
                                         coordinator_ ? &*coordinator_ : nullptr),
                          standing, origin});
  ++counters_.accepted;
}

void StoreServer::let_in_by_door(short events) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    Descriptor socket;
    const store::Caller caller = store::open_door(door_, socket);
    if (caller == store::Caller::none) {
      if ((events & POLLHUP) != 0) door_ = Descriptor();  // all outer ends are closed
      return;
    }
    if (caller == store::Caller::turned_away) {  // make room, because the client will retry
      (void)drop_a_stranger();
      continue;
    }
    admit(std::move(socket), Standing::by_door, {});
  }
}

void StoreServer::accept_all() {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    Descriptor socket(accept4(listener_.socket.get(), reinterpret_cast<sockaddr*>(&from), &size,
                              SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      if (errno == EINTR || errno == ECONNABORTED) continue;
      // Descriptors or memory are exhausted. If no stranger can be dropped, leaves the other
      // connections in the kernel's queue for a while.
      if (drop_a_stranger()) continue;
      accept_again_ = Clock::now() + kAcceptPause;
      return;
    }
    if (counters_.strangers >= options_.max_pending_strangers) (void)drop_a_stranger();
    tcp::tune(socket);
    admit(std::move(socket), Standing::stranger, origin_of<Origin>(from));
    ++strangers_from_[connections_.back().origin];
    ++counters_.strangers;
  }
}

int StoreServer::milliseconds_to_sleep() const {
  Clock::time_point next = Clock::now() + kLongestSleep;
  if (accept_again_ > Clock::now()) next = std::min(next, accept_again_);
  for (const ClientConnection& c : connections_)
    if (const auto alarm = c.session.alarm(); alarm) next = std::min(next, *alarm);
  return Deadline(next).poll_ms();
}

}  // namespace ringsmith::comm
