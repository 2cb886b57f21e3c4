#include "runtime/comm/transport/tcp/tcp_transport.hpp"

#include <algorithm>
#include <linux/sockios.h>
#include <poll.h>
#include <string>
#include <sys/ioctl.h>
#include <thread>

#include "runtime/base/deadline.hpp"
#include "runtime/comm/transport/tcp/address.hpp"

namespace ringsmith::comm::tcp {

TcpTransport::TcpTransport(std::vector<PeerSockets> links, const std::vector<std::byte*>& mirrors,
                           const Layout& layout, Doorbells doorbells, const GroupOptions& options)
    : NetworkTransport(std::move(doorbells), options.timeout),
      layout_(layout),
      peers_(links.size()) {
  for (std::size_t r = 0; r < links.size(); ++r) {
    peers_[r].address = links[r].address;
    std::vector<Descriptor>& sockets = links[r].sockets;
    const bool checks = !sockets.empty() && (options.checksum || !within_host(sockets.front()));
    peers_[r].checks = checks;
    for (Descriptor& socket : sockets) {
      peers_[r].streams.push_back(SocketStream{std::move(socket), Sender(checks),
                                               Receiver(mirrors[r], layout.arena(), checks)});
    }
    for (const SocketStream& stream : peers_[r].streams)
      entries_.push_back({stream.socket.get(), POLLIN, 0});
  }
}

TcpTransport::~TcpTransport() {
  constexpr std::chrono::milliseconds kLook{1};
  const Deadline deadline = Deadline::in(timeout());
  while (!std::ranges::all_of(peers_, delivered) && !deadline.passed()) {
    TcpTransport::progress();
    std::this_thread::sleep_for(kLook);
  }
}

bool TcpTransport::delivered(const TcpPeer& peer) {
  return !peer.sends || std::ranges::all_of(peer.streams, [](const SocketStream& stream) {
    int bytes = 0;  // not yet acknowledged by the peer's kernel
    return stream.sender.empty() &&
           (ioctl(stream.socket.get(), SIOCOUTQ, &bytes) != 0 || bytes == 0);
  });
}

TcpTransport::SocketStream& TcpTransport::stream(TcpPeer& peer, std::size_t offset) const {
  const int lane = layout_.lane_at(offset);
  return peer.streams[lane < 0 ? 0 : static_cast<std::size_t>(lane) % peer.streams.size()];
}

void TcpTransport::lend(int rank, std::size_t offset, const std::byte* from, std::size_t size,
                        std::byte* shelter) {
  TcpPeer& to = peer(rank);
  if (to.sends) stream(to, offset).sender.write(offset, from, size, shelter);
}

void TcpTransport::note(int rank, std::size_t offset, std::uint64_t value) {
  TcpPeer& to = peer(rank);
  if (to.sends) stream(to, offset).sender.counter(offset, value);
}

void TcpTransport::publish(int rank, std::size_t offset, std::uint64_t value) {
  TcpPeer& to = peer(rank);
  if (!to.sends) return;
  SocketStream& s = stream(to, offset);
  s.sender.counter(offset, value);
  flush(to, s);
  s.sender.give_back();
}

// If sending fails, give_up() first reads the remaining bytes, which may include the peer's report.
void TcpTransport::flush(TcpPeer& peer, SocketStream& stream) {
  std::string trouble = stream.sender.flush(stream.socket.get());
  if (!trouble.empty()) give_up(peer, std::move(trouble), nullptr);
}

void TcpTransport::take(TcpPeer& peer, SocketStream& stream) {
  std::string trouble = stream.receiver.take(stream.socket.get());
  if (trouble.empty()) return;
  if (!stream.receiver.damaged()) return give_up(peer, std::move(trouble), &stream);
  peer.broken = std::move(trouble);
  peer.damaged = true;
}

void TcpTransport::give_up(TcpPeer& peer, std::string why, const SocketStream* silent) {
  for (SocketStream& stream : peer.streams) {
    if (&stream != silent) (void)stream.receiver.take(stream.socket.get());
    stream.sender = Sender();
  }
  peer.sends = false;
  if (peer.broken.empty()) peer.broken = std::move(why);
}

void TcpTransport::progress() {
  // With a single socket, polling first would save nothing.
  const bool ask = entries_.size() > 1;
  if (ask) {
    look();
    if (poll(entries_.data(), entries_.size(), 0) <= 0) return;
  }
  std::size_t e = 0;
  for (TcpPeer& peer : peers_)
    for (SocketStream& stream : peer.streams) {
      const pollfd& entry = entries_[e++];
      if (peer.sends && !stream.sender.empty() && (!ask || (entry.revents & ~POLLIN) != 0))
        flush(peer, stream);
      if (peer.broken.empty() && (!ask || (entry.revents & ~POLLOUT) != 0)) take(peer, stream);
    }
}

// Sets the events that poll() reports.
void TcpTransport::look() {
  std::size_t e = 0;
  for (const TcpPeer& peer : peers_)
    for (const SocketStream& stream : peer.streams) {
      pollfd& entry = entries_[e++];
      entry.events = static_cast<short>(stream.sender.empty() ? POLLIN : POLLIN | POLLOUT);
      const bool attends = peer.broken.empty() || (peer.sends && !stream.sender.empty());
      entry.fd = attends ? stream.socket.get() : -1;
    }
}

bool TcpTransport::flushed(int& to_whom) const {
  for (std::size_t r = 0; r < peers_.size(); ++r)
    for (const SocketStream& stream : peers_[r].streams)
      if (!stream.sender.empty()) {
        to_whom = static_cast<int>(r);
        return false;
      }
  return true;
}

void TcpTransport::sleep(std::chrono::milliseconds most) {
  look();
  std::vector<pollfd> entries = entries_;
  doorbells_.watch(entries);
  if (poll(entries.data(), entries.size(), static_cast<int>(most.count())) <= 0) return;
  doorbells_.silence(entries);
}

std::string TcpTransport::describe(int rank) const {
  const std::size_t sockets = peer(rank).streams.size();
  return "rank " + std::to_string(rank) + ": tcp, " + peer(rank).address +
         (sockets > 1 ? ", " + std::to_string(sockets) + " sockets" : "") +
         (peer(rank).checks ? ", with checksums" : "");
}

}  // namespace ringsmith::comm::tcp
