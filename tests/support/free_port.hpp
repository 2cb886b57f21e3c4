// A port for a program that starts a moment later. Until that program binds the port, any
// connection may take a port that the kernel chose (port 0). Connections use ports from
// ip_local_port_range, so the ports chosen here are below that range.
//
// Another test process must not choose the port meanwhile, either. Each process therefore reserves
// a block of ports by the name of an abstract socket, which only one process of a network namespace
// can bind, and which the kernel frees when the process ends.
#pragma once

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/error.hpp"
#include "runtime/comm/transport/tcp/address.hpp"

namespace ringsmith::testing {

class PortBlock {
 public:
  static constexpr int kLowest = 10'000, kPorts = 128;

  PortBlock() {
    int ephemeral = 32'768;
    std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> ephemeral;
    const int blocks = std::max(1, (std::min(ephemeral, 32'768) - kLowest) / kPorts);
    for (int tries = 0; tries < blocks; ++tries) {
      const int block = (owner_ + tries) % blocks;
      if (!reserve("ringsmith test ports " + std::to_string(block))) continue;
      first_ = kLowest + block * kPorts;
      return;
    }
    throw std::runtime_error("free_port: other test processes have reserved all ports");
  }
  ~PortBlock() { close(socket_); }
  PortBlock(const PortBlock&) = delete;
  PortBlock& operator=(const PortBlock&) = delete;

  [[nodiscard]] bool is_own() const { return owner_ == getpid(); }  // false in a forked process
  [[nodiscard]] int next() { return first_ + used_++ % kPorts; }

 private:
  bool reserve(const std::string& name) {
    socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());  // abstract: begins with a 0
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (bind(socket_, reinterpret_cast<const sockaddr*>(&address), size) == 0) return true;
    close(socket_);
    return false;
  }

  pid_t owner_ = getpid();
  int socket_ = -1, first_ = 0, used_ = 0;
};

inline std::string free_port() {
  static std::mutex mutex;
  static std::unique_ptr<PortBlock> block;
  const std::scoped_lock lock(mutex);
  if (!block || !block->is_own()) block = std::make_unique<PortBlock>();
  for (int tries = 0; tries < PortBlock::kPorts; ++tries) try {
      const auto port = static_cast<std::uint16_t>(block->next());
      return std::to_string(comm::tcp::listen_on("lo", port).port);
    } catch (const UsageError&) {
      continue;  // a program listens there
    }
  throw std::runtime_error("free_port: every port of this process's block is taken");
}

}  // namespace ringsmith::testing
