// A port for a program that is started a moment later. A port chosen by the kernel (port 0) works
// for this process's own socket, but any connection of the machine may take it before another
// program binds it. Connections use ports from ip_local_port_range, so these ports are below that
// range, and each test process starts with a different one.
#pragma once

#include <algorithm>
#include <atomic>
#include <fstream>
#include <stdexcept>
#include <string>
#include <unistd.h>

#include "runtime/base/error.hpp"
#include "runtime/comm/transport/tcp/address.hpp"

namespace ringsmith::testing {

// Returns a port that is currently free on the loopback interface.
inline std::string free_port() {
  constexpr int kLowest = 10'000;
  int ephemeral = 32'768;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> ephemeral;
  const int span = std::max(1, std::min(ephemeral, 32'768) - kLowest);
  static std::atomic<int> next = getpid() * 61;  // pids that are close together give distant ports
  for (int tries = 0; tries < span; ++tries) {
    const int port = kLowest + (next++ % span);
    try {
      return std::to_string(
          ringsmith::comm::tcp::listen_on("lo", static_cast<std::uint16_t>(port)).port);
    } catch (const UsageError&) {
      continue;  // another process listens there
    }
  }
  throw std::runtime_error("free_port: every port below the ephemeral ones is taken");
}

}  // namespace ringsmith::testing
