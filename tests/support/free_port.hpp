// A port for a program that is started a moment later. Port 0 of the kernel would do for this
// process's own socket; handed to another program it may be taken in between, by any connection of
// the machine. Those take theirs from ip_local_port_range, so these lie below it; and each test
// process begins at another one.
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

// Free on the loopback interface now.
inline std::string free_port() {
  constexpr int kLowest = 10'000;
  int ephemeral = 32'768;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> ephemeral;
  const int span = std::max(1, std::min(ephemeral, 32'768) - kLowest);
  static std::atomic<int> next = getpid() * 61;  // others' numbers are near: far from theirs
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
