// The network over RDMA verbs: a connection (RC queue pair) to each remote rank, and one completion
// queue for all. Each connection has a TCP socket that carries no data. The kernel closes this
// socket when the peer's process dies; the device would notice the death only after all its
// retries.
#pragma once

#include <memory>
#include <vector>

#include "runtime/comm/transport/rdma/connection.hpp"
#include "runtime/comm/transport/tcp/connect.hpp"
#include "runtime/comm/types/bootstrap.hpp"

namespace ringsmith::comm::rdma {

class RdmaTransport : public NetworkTransport {
 public:
  // Collective. segment: this rank's; mirrors: one for each remote rank, null for the others.
  RdmaTransport(Bootstrap& bootstrap, Adapter adapter, std::vector<tcp::PeerSockets> links,
                std::byte* segment, const std::vector<std::byte*>& mirrors, const Layout& layout,
                Doorbells doorbells, std::chrono::milliseconds timeout);
  // Waits, for at most timeout(), until the peers' devices have received everything.
  ~RdmaTransport() override;

  void write(int rank, std::size_t offset, const std::byte* from, std::size_t size) override;
  void publish(int rank, std::size_t offset, std::uint64_t value) override;
  void progress() override;
  [[nodiscard]] bool flushed(int& to_whom) const override;
  void sleep(std::chrono::milliseconds most) override;
  [[nodiscard]] const std::string& broken(int rank) const override { return peer(rank).broken; }
  [[nodiscard]] int socket(int rank) const override { return peer(rank).link.socket().get(); }
  [[nodiscard]] std::string describe(int rank) const override;

 private:
  struct RdmaPeer {
    tcp::PeerSockets link;
    std::byte* mirror = nullptr;
    std::unique_ptr<Connection> connection;
    std::string broken;
  };
  [[nodiscard]] RdmaPeer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const RdmaPeer& peer(int rank) const {
    return peers_[static_cast<std::size_t>(rank)];
  }
  void exchange(Bootstrap& bootstrap);
  void post(RdmaPeer& peer);
  void take_completions();
  void take(const ibv_wc& completion);
  void look_at_sockets();

  Adapter adapter_;
  CompletionChannel channel_;
  CompletionQueue completions_;
  MemoryRegion segment_;
  std::vector<RdmaPeer> peers_;  // by rank
  int looks_ = 0;                // polls since the sockets were last checked
  std::uint64_t taken_ = 0;      // number of completions
};

}  // namespace ringsmith::comm::rdma
