#include "runtime/comm/transport/shm/reception.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>

#include "runtime/base/error.hpp"
#include "runtime/comm/transport/shm/greeting.hpp"

namespace ringsmith::comm {

// The abstract namespace: the address is a name that starts with a zero byte and has no file.
socklen_t make_address(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

[[noreturn]] void fail_to_connect(const std::string& what) {
  throw CommError("connecting the ranks of this host: " + what + ": " + std::strerror(errno));
}

namespace {

class Reception {
 public:
  Reception(Bootstrap& bootstrap, const Descriptor& memory, const Descriptor& listener,
            std::vector<PeerLink>& links, Deadline deadline)
      : bootstrap_(bootstrap),
        rank_(bootstrap.rank()),
        memory_(memory),
        listener_(listener),
        links_(links),
        deadline_(deadline) {}

  // To a rank below this one.
  void call_on(int peer, const std::string& name) {
    PeerLink& link = links_[static_cast<std::size_t>(peer)];
    sockaddr_un address{};
    const socklen_t length = make_address(name, address);
    link.socket = Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // Connecting does not wait for accept(): the listener's queue holds all ranks.
    if (connect(link.socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) lost(peer);
    greet(peer);
  }

  void await_all() {
    while (first_missing() >= 0) {
      std::vector<pollfd> entries{{listener_.get(), POLLIN, 0}};
      for (const Descriptor& guest : guests_) entries.push_back({guest.get(), POLLIN, 0});
      const std::size_t hosts = entries.size();
      for (const PeerLink& link : links_)  // -1 is passed over
        entries.push_back({link.memory.valid() ? -1 : link.socket.get(), POLLIN, 0});
      const int timeout = deadline_.at_most(kBetweenQuestions).poll_ms();
      const int n = poll(entries.data(), entries.size(), timeout);
      if (n < 0 && errno != EINTR) fail_to_connect("poll");
      if (n == 0) ask_around();
      for (std::size_t r = 0; r < links_.size(); ++r)
        if (entries[hosts + r].fd >= 0 && entries[hosts + r].revents != 0)
          hear(static_cast<int>(r));
      for (std::size_t g = guests_.size(); g-- > 0;)
        if (entries[1 + g].revents != 0) let_in(g);
      if (entries[0].revents != 0)
        guests_.emplace_back(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (const int missing = first_missing(); missing >= 0 && deadline_.passed()) lost(missing);
    }
  }

 private:
  // Whoever dies before it has called here closes no connection of this rank. Others may know.
  void ask_around() const {
    for (const PeerLink& link : links_)
      if (link.memory.valid() && link.socket.valid())
        if (const int culprit = overhear_farewell(link.socket.get()); culprit >= 0) lost(culprit);
    const auto dead = bootstrap_.lost_rank();
    if (dead && !links_[static_cast<std::size_t>(dead->index)].memory.valid()) lost(dead->index);
  }
  [[nodiscard]] int first_missing() const {
    for (std::size_t r = 0; r < links_.size(); ++r)
      if (static_cast<int>(r) != rank_ && !links_[r].remote && !links_[r].memory.valid())
        return static_cast<int>(r);
    return -1;
  }
  void greet(int peer) {
    const int socket = links_[static_cast<std::size_t>(peer)].socket.get();
    if (send_greeting(socket, rank_, memory_.get())) return;
    const int blames = receive_greeting(socket).blames;  // who has gone may have said why
    lost(blames >= 0 ? blames : peer);
  }
  // A rank below answers.
  void hear(int peer) {
    PeerLink& link = links_[static_cast<std::size_t>(peer)];
    Greeting greeting = receive_greeting(link.socket.get());
    if (greeting.rank != peer) lost(greeting.blames >= 0 ? greeting.blames : peer);
    link.memory = std::move(greeting.memory);
  }
  // A rank above says who it is. One that has gone will be missing.
  void let_in(std::size_t g) {
    Greeting greeting = receive_greeting(guests_[g].get());
    const int peer = greeting.rank;
    if (greeting.blames >= 0) lost(greeting.blames);
    if (peer >= 0 && (peer <= rank_ || peer >= static_cast<int>(links_.size())))
      throw CommError("connecting the ranks of this host: a stranger called itself rank " +
                      std::to_string(peer));
    if (peer >= 0) {
      PeerLink& link = links_[static_cast<std::size_t>(peer)];
      link.socket = std::move(guests_[g]);
      greet(peer);
      link.memory = std::move(greeting.memory);
    }
    guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(g));
  }
  // Those who have not called yet would find nobody, and blame this rank. Who calls is counted by
  // name: the culprit itself may have called before it died.
  void linger(int culprit) const {
    const Deadline deadline = Deadline::in(kLinger);
    std::vector<bool> late(links_.size(), false);
    for (auto r = static_cast<std::size_t>(rank_) + 1; r < links_.size(); ++r)
      late[r] = !links_[r].remote && !links_[r].socket.valid() && static_cast<int>(r) != culprit;
    const auto strike_out = [&](const Descriptor& caller) {
      pollfd entry{caller.get(), POLLIN, 0};
      if (!caller.valid() || poll(&entry, 1, deadline.poll_ms()) <= 0) return;
      const int rank = receive_greeting(caller.get()).rank;
      if (rank >= 0 && rank < static_cast<int>(late.size()))
        late[static_cast<std::size_t>(rank)] = false;
    };
    for (const Descriptor& guest : guests_) strike_out(guest);
    std::vector<Descriptor> told;  // stay open until all are told
    while (std::find(late.begin(), late.end(), true) != late.end() && !deadline.passed()) {
      pollfd entry{listener_.get(), POLLIN, 0};
      if (poll(&entry, 1, deadline.poll_ms()) <= 0) continue;
      told.emplace_back(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      send_farewell(told.back().get(), culprit);
      strike_out(told.back());
    }
  }
  // The others shall name the same rank, not this one.
  [[noreturn]] void lost(int peer) const {
    for (const PeerLink& link : links_)
      if (link.socket.valid()) send_farewell(link.socket.get(), peer);
    for (const Descriptor& guest : guests_) send_farewell(guest.get(), peer);
    linger(peer);
    Where where;
    where.rank = rank_;
    const PeerLink& link = links_[static_cast<std::size_t>(peer)];
    if (peer != rank_) where.peer = peer;
    where.peer_host = link.host;
    where.peer_pid = link.pid;
    throw PeerLost("rank " + std::to_string(peer) + " (pid " + std::to_string(link.pid) + " on " +
                       link.host +
                       ") is gone, or silent, since before the ranks of this host were connected",
                   where);
  }

  static constexpr std::chrono::milliseconds kLinger{1000};
  static constexpr std::chrono::milliseconds kBetweenQuestions{100};

  Bootstrap& bootstrap_;
  int rank_;
  const Descriptor& memory_;
  const Descriptor& listener_;
  std::vector<PeerLink>& links_;
  Deadline deadline_;
  std::vector<Descriptor> guests_;  // who they are is not known yet
};

}  // namespace

void meet_on_host(Bootstrap& bootstrap, const Descriptor& memory, const Descriptor& listener,
                  const std::vector<std::string>& names, std::vector<PeerLink>& links,
                  Deadline deadline) {
  Reception reception(bootstrap, memory, listener, links, deadline);
  for (int r = 0; r < bootstrap.rank(); ++r)
    if (!links[static_cast<std::size_t>(r)].remote)
      reception.call_on(r, names[static_cast<std::size_t>(r)]);
  reception.await_all();
}

}  // namespace ringsmith::comm
