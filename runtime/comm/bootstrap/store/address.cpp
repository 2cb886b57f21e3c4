#include "runtime/comm/bootstrap/store/address.hpp"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"

namespace ringsmith::comm::store {

namespace {

constexpr int kBacklog = 4096;

struct FreeInfo {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};
using Info = std::unique_ptr<addrinfo, FreeInfo>;

Info resolve(const std::string& host, std::uint16_t port, const std::string& remedy) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  require(code == 0,
          "'" + host + "' is no address of a host: " + gai_strerror(code) + "; " + remedy);
  return Info(found);
}

// The number of an interface's address, IPv4 before IPv6; empty if there is no such interface.
std::string address_of_interface(const std::string& name) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, freeifaddrs);
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != family || name != i->ifa_name)
        continue;
      char text[NI_MAXHOST];
      const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      if (getnameinfo(i->ifa_addr, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
        return text;
    }
  return {};
}

// "lo, eth0"
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
    throw CommError("getsockname: " + reason_of(errno));
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

std::string reason_of_bind(int error, const std::string& host, const std::string& chosen_by) {
  if (error == EADDRINUSE) return "another program listens there: choose another port, or 0";
  if (error == EADDRNOTAVAIL)
    return (is_loopback(host)
                ? "the loopback interface has no such address: 'ip link set lo up' (as root) may "
                  "mend it; or name another address of this host, or one of its interfaces"
                : std::string("that is not an address of this host: name one, or one of its "
                              "interfaces")) +
           (chosen_by.empty() ? "" : ", with " + chosen_by) + " (it has " + names_of_interfaces() +
           ")";
  if (error == EINVAL) return "a link-local address needs its interface, as in fe80::1%eth0";
  if (error == EACCES) return "ports below 1024 are for root: choose another";
  return reason_of(error);
}

std::string reason_of_silence(int error, const std::string& host) {
  if (error == ENETUNREACH && is_loopback(host))
    return "the loopback interface is down: 'ip link set lo up' (as root) mends it";
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
  const std::string number = address_of_interface(where);
  const Address address{number.empty() ? where : number, port};
  const Info info = resolve(
      address.host, port, "nor is it an interface of this one, which has " + names_of_interfaces());
  Descriptor socket(::socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) throw CommError("socket: " + reason_of(errno));
  // So that a port can be used again while old connections to it fade away. Two listeners on one
  // port remain impossible.
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(socket.get(), info->ai_addr, info->ai_addrlen) != 0 ||
      listen(socket.get(), kBacklog) != 0)
    throw UsageError("cannot listen on " + address.str() + ": " +
                     reason_of_bind(errno, address.host, chosen_by));
  const std::uint16_t bound = bound_port(socket);
  return {std::move(socket), bound};
}

std::string dial_for(const std::string& where) {
  const std::string number = address_of_interface(where);
  const std::string& address = number.empty() ? where : number;
  if (address == "0.0.0.0") return "127.0.0.1";
  if (address == "::") return "::1";
  return address;
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
                           "is it spelt right? 'getent hosts " + address.host + "' must know it");
  for (const addrinfo* info = all.get(); info != nullptr; info = info->ai_next) {
    Descriptor socket(::socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid()) throw CommError("socket: " + reason_of(errno));
    int error = 0;
    if (connect(socket.get(), info->ai_addr, info->ai_addrlen) != 0) error = errno;
    if (error == EINPROGRESS) {
      pollfd entry{socket.get(), POLLOUT, 0};
      socklen_t size = sizeof error;
      if (poll(&entry, 1, deadline.poll_ms()) <= 0)
        error = ETIMEDOUT;
      else
        getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) {
      tune(socket);
      return socket;
    }
    why = reason_of_silence(error, address.host);
    if (number != nullptr) *number = error;
  }
  return {};
}

void tune(const Descriptor& socket) {
  const auto set = [&socket](int level, int option, int value) {
    setsockopt(socket.get(), level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);   // seconds of silence before the first question
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);  // seconds between questions
  set(IPPROTO_TCP, TCP_KEEPCNT, 5);    // questions without an answer
  // A cable that is cut and mended within the ranks' default deadline must not cost the job. Left
  // to itself the kernel doubles the time between two attempts, up to 2 minutes.
  constexpr int kLongestRetry = 44;               // TCP_RTO_MAX_MS, since Linux 6.15
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 40'000);     // ms that sent bytes may stay unacknowledged
  set(IPPROTO_TCP, kLongestRetry, 1'000);         // ms
  set(IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);  // the same for six attempts, on older kernels
}

}  // namespace ringsmith::comm::store
