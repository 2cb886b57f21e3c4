#include "runtime/comm/transport/tcp/connect.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sstream>
#include <sys/socket.h>

#include "runtime/comm/transport/layout.hpp"
#include "runtime/comm/transport/tcp/address.hpp"
#include "runtime/comm/transport/tcp/stream.hpp"

namespace ringsmith::comm::tcp {

namespace {

constexpr std::size_t kMostGuests = 256;
// How long a rank waits, after the first closed connection, for a rank that knows the culprit.
constexpr std::chrono::milliseconds kMoment{300};
// A rank that gives up waits this long for ranks that have not connected yet.
constexpr std::chrono::milliseconds kLinger{1000};
constexpr std::chrono::milliseconds kBetweenQuestions{100};  // between polls of the bootstrap

// How long after the deadline the kernel still tolerates silence, so that the deadline passes
// first.
constexpr std::chrono::milliseconds kSlack{10'000};

// The first bytes that the connecting rank sends: "I am rank 3, and here is your word". `format`
// contains the constants that must be the same at both ends.
struct TcpGreeting {
  std::uint64_t format = kFormat;
  Word word{};  // random word of the listener
  std::int32_t rank = -1;
  std::int32_t world = 0;
  std::int32_t socket = 0;  // index among the pair's sockets
  static constexpr std::uint64_t kFormat =
      0x52534d3200000000 | kLanes << 24 | kSlots << 16 | kWireSlotBytes >> 10;
};

struct ListenerRecord {
  Address address;
  Word word{};
  [[nodiscard]] std::string str() const {
    return address.host + ' ' + std::to_string(address.port) + ' ' + std::to_string(word[0]) + ' ' +
           std::to_string(word[1]);
  }
  static ListenerRecord parse(const std::string& text) {
    ListenerRecord r;
    std::istringstream in(text);
    if (!(in >> r.address.host >> r.address.port >> r.word[0] >> r.word[1]))
      throw CommError("corrupt bootstrap record '" + text + "'");
    return r;
  }
};

void bid_farewell(const Descriptor& socket, int to_blame) {
  FrameHeader last{static_cast<std::uint64_t>(to_blame), 0, FrameKind::farewell};
  last.seal({});
  (void)::send(socket.get(), &last, sizeof last, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// The rank to blame for connections that were closed before all of them were made.
struct Suspicion {
  enum class Ground : std::uint8_t { none, left_later, silent, accused };  // strongest last
  int rank = -1;
  Ground ground = Ground::none;

  void add(int peer, const Descriptor& closed_socket) {
    FrameHeader last;
    const ssize_t n = ::recv(closed_socket.get(), &last, sizeof last, MSG_PEEK | MSG_DONTWAIT);
    if (n == ssize_t{sizeof last} && last.kind == FrameKind::farewell &&
        last.header_crc == last.own_crc())
      set(static_cast<int>(last.offset), Ground::accused);
    else  // a peer that sent data had made all its connections before it left
      set(peer, n > 0 ? Ground::left_later : Ground::silent);
  }

 private:
  void set(int who, Ground better) {
    if (better <= ground) return;
    rank = who;
    ground = better;
  }
};

// A connection whose greeting has not arrived yet.
struct Guest {
  Descriptor socket;
  TcpGreeting greeting;
  std::size_t got = 0;
  // Returns false if the connection must be closed.
  bool read_on() {
    const ssize_t n = ::recv(socket.get(), reinterpret_cast<std::byte*>(&greeting) + got,
                             sizeof greeting - got, MSG_DONTWAIT);
    if (n > 0) got += static_cast<std::size_t>(n);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
  }
};

// Accepts the connections of the higher ranks, among strangers' connections. If some ranks do not
// connect, finds the rank to blame.
//
//     rank 1 dies      rank 2: cannot reach it, gives up: farewell, "because of 1" --.
//                      rank 0: waits for 1, 2 and 3, learns it from 2  <-------------'
//                      rank 3: is late, but learns it from 0 or 2, which linger
class TcpReception {
 public:
  // links: the caller connects to the lower ranks, and let_in() adds the higher ranks.
  TcpReception(Bootstrap& bootstrap, const Descriptor& listener, const Word& word, int sockets,
               std::vector<PeerSockets>& links, std::vector<bool> remote)
      : bootstrap_(bootstrap),
        listener_(listener),
        word_(word),
        rank_(bootstrap.rank()),
        sockets_(sockets),
        links_(links),
        remote_(std::move(remote)),
        closed_(links.size(), false) {}

  // Returns once all higher remote ranks have connected. Throws PeerLost with the rank to blame if
  // one died or gave up; TimeoutError with the ranks that are missing at the deadline.
  void let_in(Deadline deadline) {
    std::vector<pollfd> entries;
    while (missing() > 0) {
      const bool quiet = !look(entries, deadline.at_most(kBetweenQuestions).poll_ms());
      if (deadline.passed()) complain();
      if (quiet) ask_bootstrap();
      const std::size_t hosts = 1 + guests_.size();
      for (std::size_t r = 0; r < links_.size(); ++r) {
        if (entries[hosts + r].revents == 0) continue;
        closed_[r] = true;
        if (suspicion_.rank < 0) deadline = deadline.at_most(kMoment);
        suspicion_.add(static_cast<int>(r), links_[r].sockets.front());
      }
      if (suspicion_.ground == Suspicion::Ground::accused) complain();
      Descriptor socket = attend(entries);
      if (!socket.valid()) continue;
      if (guests_.size() == kMostGuests) guests_.erase(guests_.begin());  // has waited longest
      guests_.push_back({std::move(socket), {}, 0});
    }
  }

  // Tells all connected ranks, and those that connect within kLinger, which rank made this rank
  // leave.
  void give_up(int to_blame) {
    for (const PeerSockets& link : links_)
      for (const Descriptor& socket : link.sockets)
        if (socket.valid()) bid_farewell(socket, to_blame);
    for (const Guest& guest : guests_) bid_farewell(guest.socket, to_blame);
    // The rank to blame does not count as late.
    const auto late = [&] {
      return missing() - (to_blame > rank_ && !arrived(static_cast<std::size_t>(to_blame)) ? 1 : 0);
    };
    const Deadline deadline = Deadline::in(kLinger);
    for (std::vector<pollfd> entries; late() > 0 && !deadline.passed();) {
      (void)look(entries, deadline.poll_ms());
      const std::size_t hosts = 1 + guests_.size();
      for (std::size_t r = 0; r < links_.size(); ++r)
        if (entries[hosts + r].revents != 0) closed_[r] = true;
      Descriptor socket = attend(entries);
      if (!socket.valid()) continue;
      bid_farewell(socket, to_blame);
      guests_.push_back({std::move(socket), {}, 0});
    }
  }

 private:
  // Number of higher remote ranks that are not fully connected.
  [[nodiscard]] int missing() const {
    int n = 0;
    for (auto r = static_cast<std::size_t>(rank_) + 1; r < links_.size(); ++r)
      if (remote_[r] && !arrived(r)) ++n;
    return n;
  }

  [[nodiscard]] bool arrived(std::size_t rank) const {
    const auto& sockets = links_[rank].sockets;
    return std::ranges::all_of(sockets, [](const auto& s) { return s.valid(); });
  }

  // Polls the listener, the guests and the connected ranks. True if there was an event.
  bool look(std::vector<pollfd>& entries, int timeout_ms) {
    entries = {{listener_.get(), POLLIN, 0}};
    for (const Guest& guest : guests_) entries.push_back({guest.socket.get(), POLLIN, 0});
    for (std::size_t r = 0; r < links_.size(); ++r) {
      const auto& sockets = links_[r].sockets;
      const bool connected = !sockets.empty() && sockets.front().valid() && !closed_[r];
      entries.push_back({connected ? sockets.front().get() : -1, POLLRDHUP, 0});
    }
    const int n = poll(entries.data(), entries.size(), timeout_ms);
    if (n < 0)
      for (pollfd& entry : entries) entry.revents = 0;
    return n > 0;
  }

  // Reads the greetings that have arrived. Returns a new connection, if there is one.
  Descriptor attend(const std::vector<pollfd>& entries) {
    for (std::size_t g = guests_.size(); g-- > 0;)
      if (entries[g + 1].revents != 0) hear(g);
    if (entries[0].revents == 0) return {};
    Descriptor caller(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!caller.valid() && is_lack(errno) && guests_.empty()) throw_errno("accept (tcp)", errno);
    return caller;
  }

  void hear(std::size_t g) {
    Guest& guest = guests_[g];
    const bool stays = guest.read_on();
    if (stays && guest.got < sizeof(TcpGreeting)) return;
    const TcpGreeting& said = guest.greeting;
    const auto world = static_cast<std::int32_t>(links_.size());
    if (stays && said.format == TcpGreeting::kFormat && said.word == word_ && said.world == world &&
        said.rank > rank_ && said.rank < world && said.socket >= 0 && said.socket < sockets_) {
      PeerSockets& link = links_[static_cast<std::size_t>(said.rank)];
      Descriptor& socket = link.sockets[static_cast<std::size_t>(said.socket)];
      if (!socket.valid()) {
        tune(guest.socket);
        socket = std::move(guest.socket);
      }
    }
    guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(g));
  }

  // Asks the bootstrap, because a rank that dies before it connects to this one leaves no
  // connection whose end this rank could see.
  void ask_bootstrap() {
    const auto lost = bootstrap_.lost_rank();
    if (!lost) return;
    const auto r = static_cast<std::size_t>(lost->index);
    if (remote_[r] && arrived(r)) return;  // its connection will report this
    give_up(lost->index);
    throw PeerLost(lost->text + " (tcp)", {.rank = rank_, .peer = lost->index, .op = {}});
  }

  [[noreturn]] void complain() {
    // The death of a connected rank does not keep others from connecting. So if a connected rank
    // has left while another rank is missing, it left because of the missing one.
    const bool has_left =
        suspicion_.ground == Suspicion::Ground::left_later ||
        (suspicion_.ground == Suspicion::Ground::silent && suspicion_.rank > rank_);
    if (suspicion_.rank >= 0 && !(has_left && missing() > 0)) {
      const int who = suspicion_.rank;
      give_up(who);
      throw PeerLost("rank " + std::to_string(who) + " at " +
                         links_[static_cast<std::size_t>(who)].address +
                         " is gone: it left, or fell silent, before the ranks were connected (tcp)",
                     {.rank = rank_, .peer = who, .op = {}});
    }
    std::string who;
    int last = -1;
    for (auto r = static_cast<std::size_t>(rank_) + 1; r < remote_.size(); ++r)
      if (remote_[r] && !arrived(r))
        who += (who.empty() ? "" : ", ") + std::to_string(last = static_cast<int>(r));
    give_up(last);
    throw TimeoutError("rank " + who + " did not connect to rank " + std::to_string(rank_) +
                           " at " + links_[static_cast<std::size_t>(rank_)].address + " (tcp)",
                       {.rank = rank_, .op = {}});
  }

  Bootstrap& bootstrap_;
  const Descriptor& listener_;
  const Word& word_;
  int rank_;
  int sockets_;
  std::vector<PeerSockets>& links_;
  std::vector<bool> remote_;
  std::vector<Guest> guests_;
  std::vector<bool> closed_;
  Suspicion suspicion_;
};

// Selects a congestion control that does not pace packets. There is no congestion within a host, so
// pacing would only cost time.
void hurry(const Descriptor& socket) {
  constexpr std::array<char, 5> kPlain{"reno"};
  setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, kPlain.data(), kPlain.size() - 1);
}

Descriptor call_on(int peer, const ListenerRecord& record, TcpGreeting greeting,
                   Deadline deadline) {
  std::string why;
  Descriptor socket = connect_to(record.address, deadline, why);
  greeting.word = record.word;
  if (socket.valid() &&
      ::send(socket.get(), &greeting, sizeof greeting, MSG_NOSIGNAL) == ssize_t{sizeof greeting})
    return socket;
  if (why.empty()) why = std::strerror(errno);
  throw CommError("rank " + std::to_string(greeting.rank) + " cannot reach rank " +
                  std::to_string(peer) + " at " + record.address.str() + " (tcp): " + why +
                  "; --interface names the network that joins the hosts");
}

}  // namespace

std::vector<PeerSockets> connect_all(Bootstrap& bootstrap, const std::vector<bool>& remote,
                                     const Wiring& wiring, bool same_host) {
  const int rank = bootstrap.rank(), world = bootstrap.size();
  const std::string here = !wiring.interface.empty() ? wiring.interface
                           : same_host               ? loopback_address()
                                                     : outward_address();
  const Listener listener = listen_on(here, 0, "--interface");
  const ListenerRecord mine{{address_of(here), listener.port}, random_word()};
  const std::vector<std::string> records = bootstrap.all_gather(mine.str());
  std::vector<PeerSockets> links(records.size());
  for (int r = 0; r < world; ++r) {
    const ListenerRecord theirs = ListenerRecord::parse(records[static_cast<std::size_t>(r)]);
    PeerSockets& link = links[static_cast<std::size_t>(r)];
    link.address = theirs.address.str();
    if (!remote[static_cast<std::size_t>(r)]) continue;
    link.sockets.resize(static_cast<std::size_t>(wiring.sockets));
  }
  const Deadline deadline = Deadline::in(wiring.timeout);
  TcpReception reception(bootstrap, listener.socket, mine.word, wiring.sockets, links, remote);
  for (int r = 0; r < rank; ++r) try {
      for (int s = 0; s < wiring.sockets && remote[static_cast<std::size_t>(r)]; ++s)
        links[static_cast<std::size_t>(r)].sockets[static_cast<std::size_t>(s)] =
            call_on(r, ListenerRecord::parse(records[static_cast<std::size_t>(r)]),
                    {TcpGreeting::kFormat, {}, rank, world, s}, deadline);
    } catch (const CommError&) {
      reception.give_up(r);
      throw;
    }
  reception.let_in(deadline);
  for (const PeerSockets& link : links)
    for (const Descriptor& socket : link.sockets) {
      endure(socket, limited(wiring.timeout) + kSlack);
      if (same_host) hurry(socket);
    }
  return links;
}

}  // namespace ringsmith::comm::tcp
