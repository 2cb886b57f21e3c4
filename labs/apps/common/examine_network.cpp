// doctor's look at the network interfaces.
#include <cctype>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include "labs/apps/common/examine.hpp"

namespace ringsmith::apps {

namespace {

namespace fs = std::filesystem;
using Verdict = Finding::Verdict;

// Of an interface's entry; empty if it is none that other hosts, or this one, can call.
std::string address_in(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0) return {};
  const int family = entry.ifa_addr->sa_family;
  if (family != AF_INET && family != AF_INET6) return {};
  if (family == AF_INET6) {
    sockaddr_in6 six{};
    std::memcpy(&six, entry.ifa_addr, sizeof six);
    if (IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr)) return {};
  }
  char text[NI_MAXHOST] = {};
  const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  const int code = getnameinfo(entry.ifa_addr, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return code == 0 ? text : "";
}

std::string describe_interface(const ifaddrs& entry, const std::string& address) {
  const fs::path sys = fs::path("/sys/class/net") / entry.ifa_name;
  const std::string speed = first_line(sys / "speed"), mtu = first_line(sys / "mtu");
  return fmt::format("{} {} (mtu {}{})", entry.ifa_name, address, mtu,
                     speed.empty() || speed == "-1" ? "" : ", " + speed + " Mbit/s");
}

}  // namespace

std::string first_line(const fs::path& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0)
    line.pop_back();
  return line;
}

void examine_networks(Findings& out) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, freeifaddrs);
  std::string outward, loopback;
  for (const ifaddrs* a = all; a != nullptr; a = a->ifa_next) {
    const std::string address = address_in(*a);
    if (address.empty()) continue;
    if ((a->ifa_flags & IFF_LOOPBACK) != 0)
      loopback += (loopback.empty() ? "" : ", ") + address;
    else
      outward += (outward.empty() ? "" : "; ") + describe_interface(*a, address);
  }
  if (!loopback.empty())
    out.push_back({Verdict::ok, "loopback", loopback});
  else
    out.push_back({Verdict::warn, "loopback",
                   "down, or without an address: ranks of this host that meet or talk over TCP "
                   "cannot, nor can mpirun",
                   "ip link set lo up (as root)"});
  if (!outward.empty())
    out.push_back({Verdict::ok, "network", outward});
  else
    out.push_back({Verdict::note, "network", "only the loopback: no job across hosts from here",
                   "bring an interface up, or start the container with --network host"});
}

}  // namespace ringsmith::apps
