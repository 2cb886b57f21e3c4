// Addresses of hosts and interfaces, and TCP sockets that listen or connect.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/deadline.hpp"
#include "runtime/base/process.hpp"

namespace ringsmith::comm::tcp {

struct Address {
  std::string host;  // name or number
  std::uint16_t port = 0;
  // Returns e.g. "10.0.0.1:29500" or "[::1]:29500".
  [[nodiscard]] std::string str() const;
};

// Throws UsageError naming `what` ("MASTER_PORT") unless text is a port, 1 to 65535; 0 is valid if
// or_zero.
[[nodiscard]] std::uint16_t parse_port(const std::string& what, const std::string& text,
                                       bool or_zero = false);

struct Listener {
  Descriptor socket;
  std::uint16_t port = 0;
};

// Listens on one interface: `where` is its name ("eth0"), its address, or a host name with that
// address. Port 0 chooses a free port. Throws UsageError with the remedy if this fails, or
// ResourceError if a limit is reached; `chosen_by` is the option or variable with which a user sets
// `where`.
[[nodiscard]] Listener listen_on(const std::string& where, std::uint16_t port,
                                 const std::string& chosen_by = "");

// Returns the address by which a process of this host reaches a listener on `where`: the address of
// that interface, the loopback's if `where` means all interfaces, or else `where` itself.
[[nodiscard]] std::string dial_for(const std::string& where);

// Returns the loopback address to which this host resolves `name`, e.g. "127.0.1.1" (Debian's
// /etc/hosts maps the host's own name to it). Empty if there is none, or if `name` is itself
// localhost or a loopback address, which means the same on every host.
[[nodiscard]] std::string loopback_behind(const std::string& name);

// Returns the loopback's address on this host: 127.0.0.1, or ::1 if there is no IPv4.
[[nodiscard]] std::string loopback_address();

// Tries each address of the host once and returns a non-blocking connection. If none can be made
// before the deadline, returns an invalid descriptor, with the reason in `why` and its errno in
// `error`. Throws UsageError if the host's name is unknown, ResourceError if a limit is reached.
[[nodiscard]] Descriptor connect_to(const Address& address, Deadline deadline, std::string& why,
                                    int* error = nullptr);

// True if both ends have the same address, so the connection stays within this host. Both ends get
// the same answer.
[[nodiscard]] bool within_host(const Descriptor& socket);

// Turns off the delay of small packets, and makes the kernel probe a silent peer: after 5 s, and
// then every 2 s. The connection fails if the peer does not answer, or does not acknowledge bytes,
// for 40 s (see endure()).
void tune(const Descriptor& socket);

// Makes the kernel tolerate `silence` without an acknowledgement, so that a cable unplugged for a
// shorter time delays the job but does not end it. Also shortens the time between two
// retransmissions, which by default doubles up to 2 minutes.
void endure(const Descriptor& socket, std::chrono::milliseconds silence);

// Returns the address of interface `where` ("eth0"), or `where` if no interface has that name.
[[nodiscard]] std::string address_of(const std::string& where);

// Returns the address from which this host reaches MASTER_ADDR, if that is set and the address is
// not a loopback address; else the address of the first interface that is up and not the loopback;
// else the loopback's.
[[nodiscard]] std::string outward_address();

}  // namespace ringsmith::comm::tcp
