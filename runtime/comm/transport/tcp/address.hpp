// Addresses of hosts and their interfaces, and TCP sockets to listen and to connect with: for the
// ranks of several hosts, and for the store that they meet at.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/deadline.hpp"
#include "runtime/base/process.hpp"

namespace ringsmith::comm::tcp {

struct Address {
  std::string host;  // name or number
  std::uint16_t port = 0;
  // "10.0.0.1:29500", "[::1]:29500"
  [[nodiscard]] std::string str() const;
};

// UsageError naming `what` ("MASTER_PORT") unless text is a port, 1 to 65535 (0 where `or_zero`).
[[nodiscard]] std::uint16_t parse_port(const std::string& what, const std::string& text,
                                       bool or_zero = false);

struct Listener {
  Descriptor socket;
  std::uint16_t port = 0;
};

// Listens on one interface: `where` is the name of one ("eth0"), or an address or host name that
// belongs to one. Port 0 takes a free one. UsageError with the remedy if that cannot be;
// `chosen_by` is the option or variable that a user sets `where` with.
[[nodiscard]] Listener listen_on(const std::string& where, std::uint16_t port,
                                 const std::string& chosen_by = "");

// The address by which a process reaches what listens on `where` of its own host: the number of an
// interface; of an address that stands for all interfaces, the loopback's.
[[nodiscard]] std::string dial_for(const std::string& where);

// "127.0.1.1", if this host takes the name for its loopback, as Debian's /etc/hosts does with the
// host's own; else empty. Also for localhost and numbers: those mean the loopback everywhere.
[[nodiscard]] std::string loopback_behind(const std::string& name);

// The loopback's address on this host: 127.0.0.1, or ::1 where there is no IPv4.
[[nodiscard]] std::string loopback_address();

// A non-blocking connection; invalid, with the reason in `why` and its number in `error`, if nobody
// answers there now or before the deadline. UsageError if the host's name is unknown.
[[nodiscard]] Descriptor connect_to(const Address& address, Deadline deadline, std::string& why,
                                    int* error = nullptr);

// Whether the connection stays in this host: both ends have the same address, so they agree.
[[nodiscard]] bool within_host(const Descriptor& socket);

// Has the kernel notice, within 15 s, a peer whose host is gone without a word; no small-packet
// delay. Bytes may stay unacknowledged for 40 s: see endure().
void tune(const Descriptor& socket);

// A cable that is cut and mended within `silence` costs time, not the job. So the kernel must not
// give up before, and must not be slow to try again after: left to itself it doubles the time
// between two attempts, up to 2 minutes.
void endure(const Descriptor& socket, std::chrono::milliseconds silence);

// The number of an interface's address ("eth0"), or `where` itself if there is no such interface.
[[nodiscard]] std::string address_of(const std::string& where);

// The address from which this host would speak to the job's master, if the environment names one;
// else that of the first interface that is up and not the loopback; else the loopback's.
[[nodiscard]] std::string outward_address();

}  // namespace ringsmith::comm::tcp
