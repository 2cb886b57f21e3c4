// The network by TCP: one or several sockets to each remote rank.
//
//     socket 0   control, windows, FIFO 0, FIFO 2 ...        each FIFO with its counters, so that
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
  // mirrors[r]: what this rank keeps of remote rank r, up to the arena; null for others.
  TcpTransport(std::vector<Link> links, const std::vector<std::byte*>& mirrors,
               const Layout& layout, Doorbells doorbells, const GroupOptions& options);
  // Waits until the peers' hosts have all that was sent. A socket that is closed while bytes lie
  // unread in it (a credit that nobody needs any more) drops what it has not delivered.
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
  [[nodiscard]] const std::string& broken(int rank) const override { return wire(rank).broken; }
  [[nodiscard]] bool damaged(int rank) const override { return wire(rank).damaged; }
  [[nodiscard]] int socket(int rank) const override { return wire(rank).streams[0].socket.get(); }
  [[nodiscard]] std::string describe(int rank) const override;

 private:
  struct Stream {
    Descriptor socket;
    Sender sender;
    Receiver receiver;
  };
  struct Wire {
    std::string address;
    std::deque<Stream> streams;  // none to ranks that share memory
    std::string broken;
    // Why it is broken: bytes that fail their checksum. The peer lives, and until its socket has
    // closed hears of it; nothing more is taken from it.
    bool damaged = false;
    bool sends = true;
  };
  [[nodiscard]] Wire& wire(int rank) { return wires_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Wire& wire(int rank) const { return wires_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] Stream& stream(Wire& wire, std::size_t offset) const;
  void look();
  static void flush(Wire& wire, Stream& stream);
  static void take(Wire& wire, Stream& stream);
  // silent: the stream from which nothing more will come, if it is one.
  static void give_up(Wire& wire, std::string why, const Stream* silent);
  [[nodiscard]] static bool delivered(const Wire& wire);

  Layout layout_;
  bool checksum_;                // within a host, too
  std::vector<Wire> wires_;      // by rank
  std::vector<pollfd> entries_;  // of all streams, in their order; closed ones with -1
};

}  // namespace ringsmith::comm::tcp
