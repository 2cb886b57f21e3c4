#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>

#include "runtime/base/error.hpp"
#include "runtime/comm/failure/wait_for_graph.hpp"
#include "runtime/comm/transport/shm/greeting.hpp"
#include "runtime/comm/transport/shm/mesh.hpp"

namespace ringsmith::comm {

socklen_t make_address(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

[[noreturn]] void fail_to_connect(const std::string& what) {
  throw_errno("connecting the ranks of this host: " + what, errno);
}

namespace {

class HostReception {
 public:
  HostReception(Bootstrap& bootstrap, const Descriptor& memory, const Descriptor& listener,
                const std::vector<std::string>& names, std::vector<PeerLink>& links,
                Deadline deadline)
      : bootstrap_(bootstrap),
        rank_(bootstrap.rank()),
        memory_(memory),
        listener_(listener),
        names_(names),
        links_(links),
        deadline_(deadline) {
    fcntl(listener_.get(), F_SETFL, O_NONBLOCK);  // accept() must not block
  }

  void meet_all() {
    Deadline question = Deadline::in(kBetweenQuestions);
    while (first_missing() >= 0) {
      const bool all_called = call_those_below();
      std::vector<pollfd> entries{{listener_.get(), POLLIN, 0}};
      for (const Descriptor& guest : guests_) entries.push_back({guest.get(), POLLIN, 0});
      const std::size_t hosts = entries.size();
      for (const PeerLink& link : links_)  // poll() ignores -1
        entries.push_back({link.memory.valid() ? -1 : link.socket.get(), POLLIN, 0});
      const auto pause = all_called ? kBetweenQuestions : kBetweenCalls;
      const int n = poll(entries.data(), entries.size(), deadline_.at_most(pause).poll_ms());
      if (n < 0 && errno != EINTR) fail_to_connect("poll");
      if (n < 0) continue;
      for (std::size_t r = 0; r < links_.size(); ++r)
        if (entries[hosts + r].fd >= 0 && entries[hosts + r].revents != 0)
          hear(static_cast<int>(r));
      for (std::size_t g = guests_.size(); g-- > 0;)
        if (entries[1 + g].revents != 0) let_in(g);
      if (entries[0].revents != 0) open_the_door();
      if (question.passed()) {
        ask_around();
        question = Deadline::in(kBetweenQuestions);
      }
      if (const int missing = first_missing(); missing >= 0 && deadline_.passed()) lost(missing);
    }
  }

 private:
  PeerLink& link(int rank) { return links_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Word& own_word() const {
    return links_[static_cast<std::size_t>(rank_)].word;
  }
  [[nodiscard]] bool is_peer(int rank) const {
    return rank >= 0 && rank < static_cast<int>(links_.size()) && rank != rank_ &&
           !links_[static_cast<std::size_t>(rank)].remote;
  }
  [[nodiscard]] int first_missing() const {
    for (int r = 0; r < static_cast<int>(links_.size()); ++r)
      if (is_peer(r) && !links_[static_cast<std::size_t>(r)].memory.valid()) return r;
    return -1;
  }
  // Looks for farewells from connected ranks, and asks the bootstrap. A rank that dies before it
  // connects to this one leaves no connection whose end this rank could see, but others may have
  // noticed its death.
  void ask_around() {
    for (const PeerLink& met : links_)
      if (met.memory.valid() && met.socket.valid())
        if (const int culprit = overhear_farewell(met.socket.get(), own_word()); is_peer(culprit))
          lost(culprit);
    const auto dead = bootstrap_.lost_rank();
    if (dead && !link(dead->index).memory.valid()) lost(dead->index);
  }

  // Connects to all lower ranks. Returns false if some attempts must be repeated.
  bool call_those_below() {
    if (!next_call_.passed()) return false;
    for (int r = 0; r < rank_; ++r)
      if (is_peer(r) && !link(r).socket.valid() && !call_on(r)) return false;
    return true;
  }
  // Connects to the peer. Returns false if its queue is full or a signal interrupted the attempt.
  bool call_on(int peer) {
    sockaddr_un address{};
    const socklen_t length = make_address(names_[static_cast<std::size_t>(peer)], address);
    Descriptor caller(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!caller.valid()) fail_to_connect("socket");
    // connect() waits for room in the queue, not for accept(). Callers blocked in connect() are
    // served in order; a caller that only polls may never be served.
    limit_waiting(caller, kInQueue);
    if (connect(caller.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
      if (errno == EAGAIN || errno == EINTR) return false;
      lost(peer);
    }
    if (!of_our_user(caller.get())) lost(peer);  // the peer has gone, and a stranger took its name
    limit_waiting(caller, std::chrono::milliseconds(0));  // no limit
    link(peer).socket = std::move(caller);
    (void)send_greeting(link(peer).socket.get(), link(peer).word, rank_, -1);  // hear() sees errors
    return true;
  }
  static void limit_waiting(const Descriptor& socket, std::chrono::milliseconds most) {
    const timeval time{0, std::chrono::microseconds(most).count()};
    setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
  }

  void give_memory(int peer) {
    const int socket = link(peer).socket.get();
    if (send_greeting(socket, link(peer).word, rank_, memory_.get())) return;
    const int blames = overhear_farewell(socket, own_word());  // it may have said why it left
    lost(is_peer(blames) ? blames : peer);
  }
  // Handles a peer's message: a lower rank answers, or a higher rank has received this rank's
  // memory and sends its own.
  void hear(int peer) {
    Greeting said = receive_greeting(link(peer).socket.get(), own_word(), Take::memory);
    if (said.kind == Greeting::Kind::nothing) return;
    if (said.kind == Greeting::Kind::leaves && is_peer(said.blames)) lost(said.blames);
    if (said.kind == Greeting::Kind::gone && peer < rank_) {
      // Connects again after kBetweenCalls. Either the peer had too many guests and dropped this
      // one, or it has gone, which the next attempt will show.
      link(peer).socket = Descriptor();
      next_call_ = Deadline::in(kBetweenCalls);
      return;
    }
    if (said.kind != Greeting::Kind::stays || said.rank != peer || !said.memory.valid()) lost(peer);
    link(peer).memory = std::move(said.memory);
    if (peer < rank_) give_memory(peer);
  }
  // Handles a guest's first message: a higher rank introduces itself, or a stranger sends anything.
  // If the guest was a rank that has died, that rank is found missing later.
  void let_in(std::size_t g) {
    const Greeting said = receive_greeting(guests_[g].get(), own_word(), Take::words);
    if (said.kind == Greeting::Kind::nothing) return;
    Descriptor guest = std::move(guests_[g]);
    guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(g));
    if (said.kind != Greeting::Kind::stays || said.rank < rank_ || !is_peer(said.rank)) return;
    if (link(said.rank).socket.valid()) return;
    link(said.rank).socket = std::move(guest);
    give_memory(said.rank);
  }
  void open_the_door() {
    for (int n = 0; n < kCallersAtATime; ++n) {
      Descriptor caller(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!caller.valid() && errno == EAGAIN) return;
      if (!caller.valid() && (errno == EMFILE || errno == ENFILE)) {
        if (guests_.empty()) fail_to_connect("accept");
        if (n > 0) return;  // accept() fails like this even without a caller
      }
      if (!caller.valid() || guests_.size() == kMostGuests)
        if (!guests_.empty()) guests_.erase(guests_.begin());  // the one that has waited longest
      if (caller.valid() && of_our_user(caller.get())) guests_.push_back(std::move(caller));
    }
  }

  // Keeps the listener open for a while: ranks that have not connected yet would otherwise find no
  // listener and blame this rank.
  void linger(int culprit) {
    const Deadline deadline = Deadline::in(kLinger);
    std::vector<bool> late(links_.size(), false);
    for (int r = rank_ + 1; r < static_cast<int>(links_.size()); ++r)
      late[static_cast<std::size_t>(r)] = is_peer(r) && !link(r).socket.valid() && r != culprit;
    std::vector<Descriptor> told;  // kept open until all late ranks have been told
    while (std::ranges::find(late, true) != late.end() && !deadline.passed()) {
      std::vector<pollfd> entries{{listener_.get(), POLLIN, 0}};
      for (const Descriptor& guest : guests_) entries.push_back({guest.get(), POLLIN, 0});
      if (poll(entries.data(), entries.size(), deadline.poll_ms()) <= 0) continue;
      for (std::size_t g = guests_.size(); g-- > 0;) {
        if (entries[1 + g].revents == 0) continue;
        const Greeting said = receive_greeting(guests_[g].get(), own_word(), Take::words);
        if (said.kind == Greeting::Kind::stays && is_peer(said.rank)) {
          send_farewell(guests_[g].get(), link(said.rank).word, culprit);
          late[static_cast<std::size_t>(said.rank)] = false;
          told.push_back(std::move(guests_[g]));
        }
        guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(g));
      }
      if (entries[0].revents != 0) open_the_door();
    }
  }
  // The farewells make the other ranks name `peer`, not this rank.
  [[noreturn]] void lost(int peer) {
    for (const PeerLink& met : links_)
      if (met.socket.valid()) send_farewell(met.socket.get(), met.word, peer);
    linger(peer);
    const PeerLink& culprit = link(peer);
    throw PeerLost(
        "rank " + std::to_string(peer) + " (pid " + std::to_string(culprit.pid) + " on " +
            culprit.host +
            ") is gone: it left, or fell silent, before the ranks of this host were connected" +
            state_of_process(culprit.pid),
        {.rank = rank_,
         .peer = peer != rank_ ? peer : -1,
         .op = {},
         .peer_host = culprit.host,
         .peer_pid = culprit.pid});
  }

  static constexpr std::chrono::milliseconds kLinger{1000};
  static constexpr std::chrono::milliseconds kBetweenQuestions{100};
  static constexpr std::chrono::milliseconds kBetweenCalls{5};
  static constexpr std::chrono::milliseconds kInQueue{20};
  static constexpr std::size_t kMostGuests = 256;
  static constexpr int kCallersAtATime = 256;  // after these, guests are served again

  Bootstrap& bootstrap_;
  int rank_;
  const Descriptor& memory_;
  const Descriptor& listener_;
  const std::vector<std::string>& names_;
  std::vector<PeerLink>& links_;
  Deadline deadline_;
  Deadline next_call_ = Deadline::in(std::chrono::milliseconds(0));
  std::vector<Descriptor> guests_;  // not identified yet
};

}  // namespace

void meet_on_host(Bootstrap& bootstrap, const Descriptor& memory, const Descriptor& listener,
                  const std::vector<std::string>& names, std::vector<PeerLink>& links,
                  Deadline deadline) {
  HostReception(bootstrap, memory, listener, names, links, deadline).meet_all();
}

}  // namespace ringsmith::comm
