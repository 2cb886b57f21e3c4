// Wires over TCP: one socket to each remote rank.
#pragma once

#include <memory>
#include <vector>

#include "runtime/comm/transport/tcp/connect.hpp"
#include "runtime/comm/transport/tcp/receiver.hpp"
#include "runtime/comm/transport/tcp/sender.hpp"
#include "runtime/comm/transport/wires.hpp"

namespace ringsmith::comm::tcp {

class TcpWires : public Wires {
 public:
  // mirrors[r]: what this rank keeps of remote rank r, mirror_bytes long; null for others.
  TcpWires(std::vector<Link> links, const std::vector<std::byte*>& mirrors,
           std::size_t mirror_bytes, Doorbells doorbells, std::chrono::milliseconds timeout);
  // Waits until the peers' hosts have all that was sent. A socket that is closed while bytes lie
  // unread in it (a credit that nobody needs any more) drops what it has not delivered.
  ~TcpWires() override;

  void write(int rank, std::size_t offset, const std::byte* from, std::size_t size) override;
  void publish(int rank, std::size_t offset, std::uint64_t value) override;
  void progress() override;
  [[nodiscard]] bool flushed(int& to_whom) const override;
  void sleep(std::chrono::milliseconds most) override;
  [[nodiscard]] const std::string& broken(int rank) const override { return wire(rank).broken; }
  [[nodiscard]] int socket(int rank) const override { return wire(rank).link.socket.get(); }
  [[nodiscard]] std::string describe(int rank) const override;

 private:
  struct Wire {
    Link link;
    Sender sender;
    std::unique_ptr<Receiver> receiver;
    std::string broken;
  };
  [[nodiscard]] Wire& wire(int rank) { return wires_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Wire& wire(int rank) const { return wires_[static_cast<std::size_t>(rank)]; }
  static void flush(Wire& wire);
  [[nodiscard]] static bool delivered(const Wire& wire);

  std::vector<Wire> wires_;  // by rank
};

}  // namespace ringsmith::comm::tcp
