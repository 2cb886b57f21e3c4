#include "runtime/comm/transport/tcp/interface.hpp"

#include <cstdlib>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "runtime/base/process.hpp"
#include "runtime/comm/bootstrap/store/address.hpp"

namespace ringsmith::comm::tcp {

namespace {

std::string number_of(const sockaddr* address) {
  char text[NI_MAXHOST];
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  const int code = getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return code == 0 ? text : "";
}

// The first interface that `fits`, IPv4 before IPv6.
template <class Fits>
std::string find_interface(Fits fits) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, freeifaddrs);
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next)
      if (i->ifa_addr != nullptr && i->ifa_addr->sa_family == family && fits(*i))
        return number_of(i->ifa_addr);
  return {};
}

// "Connecting" a UDP socket sends nothing: the kernel only chooses the way, and with it the
// address.
std::string address_towards(const char* host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host, "9", &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  const Descriptor socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (!socket.valid() || connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return {};
  return number_of(reinterpret_cast<const sockaddr*>(&address));
}

bool is_loopback(const std::string& address) {
  return address.empty() || address.starts_with("127.") || address == "::1";
}

}  // namespace

std::string address_of(const std::string& where) {
  const std::string number =
      find_interface([&where](const ifaddrs& i) { return where == i.ifa_name; });
  return number.empty() ? where : number;
}

std::string outward_address() {
  // The master's own host would speak to itself through the loopback: then the name it has is an
  // address of this host, and the interface that carries it is found below.
  if (const char* master = std::getenv("MASTER_ADDR"); master != nullptr)
    if (std::string address = address_towards(master); !is_loopback(address)) return address;
  const std::string first = find_interface([](const ifaddrs& i) {
    return (i.ifa_flags & IFF_UP) != 0 && (i.ifa_flags & IFF_LOOPBACK) == 0;
  });
  return first.empty() ? store::loopback_address() : first;
}

}  // namespace ringsmith::comm::tcp
