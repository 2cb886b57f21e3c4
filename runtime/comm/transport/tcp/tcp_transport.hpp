// The network over TCP: one or more sockets to each remote rank.
//
//     socket 0   control, staging, FIFO 0, FIFO 2 ...        a FIFO and its counters share one, so
//     socket 1   FIFO 1 ...                                  a counter cannot overtake its bytes
#pragma once

#include <deque>
#include <vector>

#include "runtime/comm/transport/layout.hpp"
#include "runtime/comm/transport/tcp/connect.hpp"
#include "runtime/comm/transport/tcp/stream.hpp"
#include "runtime/comm/types/options.hpp"

namespace ringsmith::comm::tcp {

class TcpTransport : public NetworkTransport {
 public:
  // mirrors[r]: this rank's mirror of remote rank r, up to the arena; null for local ranks.
  TcpTransport(std::vector<PeerSockets> links, const std::vector<std::byte*>& mirrors,
               const Layout& layout, Doorbells doorbells, const GroupOptions& options);
  // Waits, for at most timeout(), until the peers' hosts have received everything. If a socket with
  // unread bytes, such as a late credit, is closed, the kernel discards undelivered bytes.
  ~TcpTransport() override;

  void write(int rank, std::size_t offset, const std::byte* from, std::size_t size) override {
    lend(rank, offset, from, size, nullptr);
  }
  void lend(int rank, std::size_t offset, const std::byte* from, std::size_t size,
            std::byte* shelter) override;
  void publish(int rank, std::size_t offset, std::uint64_t value) override;
  void note(int rank, std::size_t offset, std::uint64_t value) override;
  void progress() override;
  [[nodiscard]] bool flushed(int& to_whom) const override;
  void sleep(std::chrono::milliseconds most) override;
  [[nodiscard]] const std::string& broken(int rank) const override { return peer(rank).broken; }
  [[nodiscard]] bool damaged(int rank) const override { return peer(rank).damaged; }
  [[nodiscard]] int socket(int rank) const override { return peer(rank).streams[0].socket.get(); }
  [[nodiscard]] std::string describe(int rank) const override;

 private:
  struct SocketStream {
    Descriptor socket;
    Sender sender;
    Receiver receiver;
  };
  struct TcpPeer {
    std::string address;
    std::deque<SocketStream> streams;  // none to ranks that share memory
    bool checks = false;               // whether bytes have checksums; always true between hosts
    std::string broken;
    // Set if bytes failed their checksum. The peer is alive: this rank still sends to it, but reads
    // nothing more from it.
    bool damaged = false;
    bool sends = true;
  };
  [[nodiscard]] TcpPeer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const TcpPeer& peer(int rank) const {
    return peers_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] SocketStream& stream(TcpPeer& peer, std::size_t offset) const;
  void look();
  static void flush(TcpPeer& peer, SocketStream& stream);
  static void take(TcpPeer& peer, SocketStream& stream);
  // silent: the stream that has nothing more to read; null if there is none.
  static void give_up(TcpPeer& peer, std::string why, const SocketStream* silent);
  [[nodiscard]] static bool delivered(const TcpPeer& peer);

  Layout layout_;
  std::vector<TcpPeer> peers_;   // by rank
  std::vector<pollfd> entries_;  // of all streams, in order; fd -1: not polled
};

}  // namespace ringsmith::comm::tcp
