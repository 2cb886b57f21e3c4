#include "runtime/comm/transport/tcp/connect.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sstream>
#include <sys/socket.h>

#include "runtime/base/error.hpp"
#include "runtime/comm/bootstrap/store/address.hpp"
#include "runtime/comm/transport/tcp/interface.hpp"
#include "runtime/comm/transport/tcp/reception.hpp"

namespace ringsmith::comm::tcp {

namespace {

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
  const int rank = bootstrap.rank(), world = bootstrap.size();
  const std::string here = !wiring.interface.empty() ? wiring.interface
                           : same_host               ? store::loopback_address()
                                                     : outward_address();
  const store::Listener listener = store::listen_on(here, 0, "--interface");
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
  }
  const Deadline deadline = Deadline::in(wiring.timeout);
  Reception reception(bootstrap, listener.socket, mine.word, wiring.sockets, links, remote);
  for (int r = 0; r < rank; ++r) try {
      for (int s = 0; s < wiring.sockets && remote[static_cast<std::size_t>(r)]; ++s)
        links[static_cast<std::size_t>(r)].sockets[static_cast<std::size_t>(s)] =
            call_on(r, Record::parse(records[static_cast<std::size_t>(r)]),
                    {Greeting::kFormat, {}, rank, world, s}, deadline);
    } catch (const CommError&) {
      reception.give_up(r);
      throw;
    }
  reception.let_in(deadline);
  for (const Link& link : links)
    for (const Descriptor& socket : link.sockets) {
      endure(socket, wiring.timeout);
      if (same_host) hurry(socket);
    }
  return links;
}

}  // namespace ringsmith::comm::tcp
