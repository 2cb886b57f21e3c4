#include "runtime/comm/transport/tcp/address.hpp"

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "runtime/base/error.hpp"

namespace ringsmith::comm::tcp {

namespace {

constexpr int kBacklog = 4096;

struct FreeInfo {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};
using Info = std::unique_ptr<addrinfo, FreeInfo>;

// Sets `code` to the result of getaddrinfo(), and returns null unless it is 0.
Info look_up(const std::string& host, std::uint16_t port, int type, int& code) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  return Info(found);
}

Info resolve(const std::string& host, std::uint16_t port, const std::string& remedy) {
  int code = 0;
  Info found = look_up(host, port, SOCK_STREAM, code);
  require(code == 0,
          "'" + host + "' is not an address of a host: " + gai_strerror(code) + "; " + remedy);
  return found;
}

std::string number_of(const sockaddr* address) {
  char text[NI_MAXHOST];
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  const int code = getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return code == 0 ? text : "";
}

// Returns the address of the first interface that `fits`, IPv4 before IPv6; empty if there is none.
template <class Fits>
std::string find_interface(Fits fits) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, freeifaddrs);
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next)
      if (i->ifa_addr != nullptr && i->ifa_addr->sa_family == family && fits(*i))
        if (std::string number = number_of(i->ifa_addr); !number.empty()) return number;
  return {};
}

// Returns the local address from which `host` is reached. "Connecting" a UDP socket sends nothing;
// the kernel only chooses the route.
std::string address_towards(const char* host) {
  int code = 0;
  const Info found = look_up(host, 9, SOCK_DGRAM, code);
  if (code != 0) return {};
  const Descriptor socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (!socket.valid() || connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return {};
  return number_of(reinterpret_cast<const sockaddr*>(&address));
}

// Returns e.g. "lo, eth0".
std::string names_of_interfaces() {
  struct if_nameindex* const all = if_nameindex();
  if (all == nullptr) return "none";
  const std::unique_ptr<struct if_nameindex, void (*)(struct if_nameindex*)> owner(
      all, if_freenameindex);
  std::string names;
  for (const struct if_nameindex* i = all; i->if_index != 0; ++i)
    names += (names.empty() ? "" : ", ") + std::string(i->if_name);
  return names;
}

std::uint16_t bound_port(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw_errno("getsockname", errno);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::string reason_of_bind(int error, const std::string& host, const std::string& chosen_by) {
  if (error == EADDRINUSE) return "another program listens there: choose another port, or 0";
  if (error == EADDRNOTAVAIL)
    return (is_loopback(host)
                ? "the loopback interface has no such address: 'ip link set lo up' (as root) may "
                  "fix it; or name another address of this host, or one of its interfaces"
                : std::string("that is not an address of this host: name one, or one of its "
                              "interfaces")) +
           (chosen_by.empty() ? "" : ", with " + chosen_by) + " (it has " + names_of_interfaces() +
           ")";
  if (error == EINVAL) return "a link-local address needs its interface, as in fe80::1%eth0";
  if (error == EACCES) return "ports below 1024 are reserved for root: choose another";
  return reason_of(error);
}

std::string reason_of_silence(int error, const std::string& host) {
  if (error == ENETUNREACH && is_loopback(host))
    return "the loopback interface is down: 'ip link set lo up' (as root) fixes it";
  return reason_of(error);
}

}  // namespace

std::string Address::str() const {
  const bool six = host.find(':') != std::string::npos;
  return (six ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::uint16_t parse_port(const std::string& what, const std::string& text, bool or_zero) {
  std::uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, port);
  require(error == std::errc() && stop == end && (port > 0 || or_zero),
          what + " '" + text + "' is not a port: give a number from " + (or_zero ? "0" : "1") +
              " to 65535");
  return port;
}

Listener listen_on(const std::string& where, std::uint16_t port, const std::string& chosen_by) {
  const Address address{address_of(where), port};
  const Info info =
      resolve(address.host, port,
              "nor is it an interface of this host, which has " + names_of_interfaces());
  Descriptor socket(::socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) throw_errno("socket", errno);
  // Old connections to the port may be in TIME_WAIT. The option does not permit a second listener.
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(socket.get(), info->ai_addr, info->ai_addrlen) != 0 ||
      listen(socket.get(), kBacklog) != 0) {
    const int error = errno;
    if (is_lack(error)) throw_errno("cannot listen on " + address.str(), error);
    throw UsageError("cannot listen on " + address.str() + ": " +
                     reason_of_bind(error, address.host, chosen_by));
  }
  const std::uint16_t bound = bound_port(socket);
  return {std::move(socket), bound};
}

std::string dial_for(const std::string& where) {
  std::string address = address_of(where);
  if (address == "0.0.0.0") return "127.0.0.1";
  if (address == "::") return "::1";
  return address;
}

std::string loopback_behind(const std::string& name) {
  if (is_loopback(name)) return {};
  int code = 0;
  const Info found = look_up(name, 9, SOCK_STREAM, code);
  const std::string number = code == 0 ? number_of(found->ai_addr) : "";
  return is_loopback(number) ? number : "";
}

std::string loopback_address() {
  const auto is_ours = [](const char* number) {
    const Info info = resolve(number, 0, "");
    const Descriptor socket(::socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return socket.valid() && bind(socket.get(), info->ai_addr, info->ai_addrlen) == 0;
  };
  return !is_ours("127.0.0.1") && is_ours("::1") ? "::1" : "127.0.0.1";
}

Descriptor connect_to(const Address& address, Deadline deadline, std::string& why, int* number) {
  const Info all = resolve(address.host, address.port,
                           "check the spelling: 'getent hosts " + address.host + "' must find it");
  for (const addrinfo* info = all.get(); info != nullptr; info = info->ai_next) {
    Descriptor socket(::socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid()) throw_errno("socket", errno);
    int error = 0;
    if (connect(socket.get(), info->ai_addr, info->ai_addrlen) != 0) error = errno;
    if (error == EINPROGRESS) {
      pollfd entry{socket.get(), POLLOUT, 0};
      socklen_t size = sizeof error;
      int ready = 0;
      do ready = poll(&entry, 1, deadline.poll_ms());
      while (ready == 0 ? !deadline.passed() : ready < 0 && errno == EINTR);
      if (ready <= 0)
        error = ready < 0 ? errno : ETIMEDOUT;
      else
        getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) {
      tune(socket);
      return socket;
    }
    if (is_lack(error)) throw_errno("connect", error);
    why = reason_of_silence(error, address.host);
    if (number != nullptr) *number = error;
  }
  return {};
}

bool within_host(const Descriptor& socket) {
  const auto number = [&](auto* address_of_end) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    return address_of_end(socket.get(), at, &size) == 0 ? number_of(at) : std::string();
  };
  const std::string own = number(getsockname);
  return !own.empty() && own == number(getpeername);
}

void tune(const Descriptor& socket) {
  const auto set = [&socket](int level, int option, int value) {
    setsockopt(socket.get(), level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);   // seconds of silence before the first probe
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);  // seconds between probes
  set(IPPROTO_TCP, TCP_KEEPCNT, 5);    // unanswered probes; TCP_USER_TIMEOUT takes precedence
  endure(socket, std::chrono::milliseconds(40'000));  // the ranks' default deadline plus a margin
}

void endure(const Descriptor& socket, std::chrono::milliseconds silence) {
  constexpr int kLongestRetry = 44;  // the option TCP_RTO_MAX_MS, since Linux 6.15
  const auto set = [&socket](int option, int value) {
    setsockopt(socket.get(), IPPROTO_TCP, option, &value, sizeof value);
  };
  set(TCP_USER_TIMEOUT, static_cast<int>(std::clamp<std::int64_t>(silence.count(), 1, INT_MAX)));
  set(kLongestRetry, 1000);
  set(TCP_THIN_LINEAR_TIMEOUTS, 1);  // older kernels: equal intervals for six retries
}

std::string address_of(const std::string& where) {
  const std::string number =
      find_interface([&where](const ifaddrs& i) { return where == i.ifa_name; });
  return number.empty() ? where : number;
}

std::string outward_address() {
  // On the master's own host, its name may resolve to the loopback, which other hosts cannot reach.
  if (const char* master = std::getenv("MASTER_ADDR"); master != nullptr)
    if (std::string address = address_towards(master); !address.empty() && !is_loopback(address))
      return address;
  const std::string first = find_interface([](const ifaddrs& i) {
    return (i.ifa_flags & IFF_UP) != 0 && (i.ifa_flags & IFF_LOOPBACK) == 0;
  });
  return first.empty() ? loopback_address() : first;
}

}  // namespace ringsmith::comm::tcp
