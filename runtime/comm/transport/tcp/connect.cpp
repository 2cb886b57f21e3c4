#include "runtime/comm/transport/tcp/connect.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <random>
#include <sstream>
#include <sys/socket.h>

#include "runtime/base/error.hpp"
#include "runtime/comm/bootstrap/store/address.hpp"
#include "runtime/comm/transport/control.hpp"
#include "runtime/comm/transport/tcp/interface.hpp"

namespace ringsmith::comm::tcp {

namespace {

using Word = std::array<std::uint64_t, 2>;

Word random_word() {
  std::random_device random;
  const auto half = [&random] { return std::uint64_t{random()} << 32 | random(); };
  return {half(), half()};
}

// The first bytes on a connection. What must be alike at both ends is compared.
struct Greeting {
  std::uint64_t format = kFormat;
  Word word{};  // the listener's
  std::int32_t rank = -1;
  std::int32_t world = 0;
  std::int32_t socket = 0;  // which of those between the two
  static constexpr std::uint64_t kFormat =
      0x52534d3100000000 | kLanes << 24 | kSlots << 16 | kWireSlotBytes >> 10;
};

struct Record {
  store::Address address;
  Word word{};
  int sockets = 1;
  [[nodiscard]] std::string str() const {
    return address.host + ' ' + std::to_string(address.port) + ' ' + std::to_string(word[0]) + ' ' +
           std::to_string(word[1]) + ' ' + std::to_string(sockets);
  }
  static Record parse(const std::string& text) {
    Record r;
    std::istringstream in(text);
    if (!(in >> r.address.host >> r.address.port >> r.word[0] >> r.word[1] >> r.sockets))
      throw CommError("corrupt bootstrap record '" + text + "'");
    return r;
  }
};

// A cable that is cut and mended within the deadline costs time, not the job. So the kernel must
// not give up before, and must not be slow to try again after: left to itself it doubles the time
// between two attempts, up to 2 minutes.
void endure(const Descriptor& socket, std::chrono::milliseconds timeout) {
  constexpr int kLongestRetry = 44;                    // TCP_RTO_MAX_MS, ms; since Linux 6.15
  constexpr std::chrono::milliseconds kSlack{10'000};  // that deadlines speak first
  const auto set = [&socket](int option, int value) {
    setsockopt(socket.get(), IPPROTO_TCP, option, &value, sizeof value);
  };
  set(TCP_USER_TIMEOUT, static_cast<int>((timeout + kSlack).count()));
  set(kLongestRetry, 1000);
  set(TCP_THIN_LINEAR_TIMEOUTS, 1);  // the same for six attempts, on older kernels
}

// Nothing is congested within a host: an algorithm that spaces packets out only costs time.
void hurry(const Descriptor& socket) {
  constexpr std::array<char, 5> kPlain{"reno"};
  setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, kPlain.data(), kPlain.size() - 1);
}

// A connection whose greeting has not come yet.
struct Guest {
  Descriptor socket;
  Greeting greeting;
  std::size_t got = 0;

  // False: send it away.
  bool read_on() {
    const ssize_t n = recv(socket.get(), reinterpret_cast<std::byte*>(&greeting) + got,
                           sizeof greeting - got, MSG_DONTWAIT);
    if (n > 0) got += static_cast<std::size_t>(n);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
  }
};

class Reception {
 public:
  Reception(const Descriptor& listener, const Word& word, int rank, int sockets,
            std::vector<Link>& links)
      : listener_(listener), word_(word), rank_(rank), sockets_(sockets), links_(links) {}

  // Lets in the ranks above this one that are remote.
  void let_in(const std::vector<bool>& remote, Deadline deadline) {
    missing_ = sockets_ * std::count(remote.begin() + rank_ + 1, remote.end(), true);
    while (missing_ > 0) {
      std::vector<pollfd> entries{{listener_.get(), POLLIN, 0}};
      for (const Guest& guest : guests_) entries.push_back({guest.socket.get(), POLLIN, 0});
      if (poll(entries.data(), entries.size(), deadline.poll_ms()) <= 0 && deadline.passed())
        complain(remote);
      for (std::size_t g = guests_.size(); g-- > 0;)
        if (entries[g + 1].revents != 0) hear(g);
      if (entries[0].revents == 0) continue;
      Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.valid()) continue;
      if (guests_.size() == kMostGuests) guests_.erase(guests_.begin());  // the most silent one
      guests_.push_back({std::move(socket), {}, 0});
    }
  }

 private:
  static constexpr std::size_t kMostGuests = 256;

  void hear(std::size_t g) {
    Guest& guest = guests_[g];
    const bool stays = guest.read_on();
    if (stays && guest.got < sizeof(Greeting)) return;
    const Greeting& said = guest.greeting;
    const auto world = static_cast<std::int32_t>(links_.size());
    if (stays && said.format == Greeting::kFormat && said.word == word_ && said.world == world &&
        said.rank > rank_ && said.rank < world && said.socket >= 0 && said.socket < sockets_) {
      Link& link = links_[static_cast<std::size_t>(said.rank)];
      Descriptor& socket = link.sockets[static_cast<std::size_t>(said.socket)];
      if (!socket.valid()) {
        store::tune(guest.socket);
        socket = std::move(guest.socket);
        --missing_;
      }
    }
    guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(g));
  }

  [[noreturn]] void complain(const std::vector<bool>& remote) const {
    std::string who;
    for (std::size_t r = static_cast<std::size_t>(rank_) + 1; r < remote.size(); ++r)
      if (remote[r] && !std::all_of(links_[r].sockets.begin(), links_[r].sockets.end(),
                                    [](const Descriptor& s) { return s.valid(); }))
        who += (who.empty() ? "" : ", ") + std::to_string(r);
    throw TimeoutError("rank " + who + " did not connect to rank " + std::to_string(rank_) +
                           " at " + links_[static_cast<std::size_t>(rank_)].address + " (tcp)",
                       {.rank = rank_, .op = {}});
  }

  const Descriptor& listener_;
  const Word& word_;
  int rank_;
  int sockets_;
  std::vector<Link>& links_;
  std::vector<Guest> guests_;
  std::ptrdiff_t missing_ = 0;
};

Descriptor call_on(int peer, const Record& record, Greeting greeting, Deadline deadline) {
  std::string why;
  Descriptor socket = store::connect_to(record.address, deadline, why);
  greeting.word = record.word;
  if (socket.valid() &&
      send(socket.get(), &greeting, sizeof greeting, MSG_NOSIGNAL) == ssize_t{sizeof greeting})
    return socket;
  if (why.empty()) why = std::strerror(errno);
  throw CommError("rank " + std::to_string(greeting.rank) + " cannot reach rank " +
                  std::to_string(peer) + " at " + record.address.str() + " (tcp): " + why +
                  "; --interface names the network that joins the hosts");
}

}  // namespace

std::vector<Link> connect_all(Bootstrap& bootstrap, const std::vector<bool>& remote,
                              const Wiring& wiring, bool same_host) {
  const Deadline deadline = Deadline::in(wiring.timeout);
  const int rank = bootstrap.rank(), world = bootstrap.size();
  const std::string here = !wiring.interface.empty() ? wiring.interface
                           : same_host               ? "127.0.0.1"
                                                     : outward_address();
  const store::Listener listener = store::listen_on(here, 0);
  const Record mine{{address_of(here), listener.port}, random_word(), wiring.sockets};
  const std::vector<std::string> records = bootstrap.all_gather(mine.str());
  std::vector<Link> links(records.size());
  for (int r = 0; r < world; ++r) {
    const Record theirs = Record::parse(records[static_cast<std::size_t>(r)]);
    require(theirs.sockets == wiring.sockets,
            "--sockets is " + std::to_string(wiring.sockets) + " on rank " + std::to_string(rank) +
                " but " + std::to_string(theirs.sockets) + " on rank " + std::to_string(r) +
                ": it must be the same on all");
    Link& link = links[static_cast<std::size_t>(r)];
    link.address = theirs.address.str();
    if (!remote[static_cast<std::size_t>(r)]) continue;
    link.sockets.resize(static_cast<std::size_t>(wiring.sockets));
    for (int s = 0; s < wiring.sockets && r < rank; ++s)
      link.sockets[static_cast<std::size_t>(s)] =
          call_on(r, theirs, {Greeting::kFormat, {}, rank, world, s}, deadline);
  }
  Reception(listener.socket, mine.word, rank, wiring.sockets, links).let_in(remote, deadline);
  for (const Link& link : links)
    for (const Descriptor& socket : link.sockets) {
      endure(socket, wiring.timeout);
      if (same_host) hurry(socket);
    }
  return links;
}

}  // namespace ringsmith::comm::tcp
