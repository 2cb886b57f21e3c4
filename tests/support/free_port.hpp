// A port for a program that starts a moment later. Until that program binds the port, any
// connection may take a port that the kernel chose (port 0). Connections use ports from
// ip_local_port_range, so the ports chosen here are below that range. The pid determines the first
// port that a test process tries.
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

inline std::string free_port() {
  constexpr int kLowest = 10'000;
  int ephemeral = 32'768;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> ephemeral;
  const int span = std::max(1, std::min(ephemeral, 32'768) - kLowest);
  static std::atomic<int> next = getpid() * 61;  // distant ports for neighbouring pids
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
