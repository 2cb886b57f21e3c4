#include "runtime/comm/transport/tcp/tcp_wires.hpp"

#include <algorithm>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <thread>

#include "runtime/base/deadline.hpp"

namespace ringsmith::comm::tcp {

TcpWires::TcpWires(std::vector<Link> links, const std::vector<std::byte*>& mirrors,
                   std::size_t mirror_bytes, Doorbells doorbells, std::chrono::milliseconds timeout)
    : Wires(std::move(doorbells), timeout), wires_(links.size()) {
  for (std::size_t r = 0; r < links.size(); ++r) {
    wires_[r].link = std::move(links[r]);
    if (mirrors[r] != nullptr)
      wires_[r].receiver = std::make_unique<Receiver>(mirrors[r], mirror_bytes);
  }
}

TcpWires::~TcpWires() {
  constexpr std::chrono::milliseconds kLook{1};
  const Deadline deadline = Deadline::in(timeout());
  while (!std::all_of(wires_.begin(), wires_.end(), delivered) && !deadline.passed()) {
    progress();
    std::this_thread::sleep_for(kLook);
  }
}

bool TcpWires::delivered(const Wire& wire) {
  if (!wire.receiver || !wire.broken.empty()) return true;
  int bytes = 0;  // that the peer's kernel has not acknowledged
  return wire.sender.empty() &&
         (ioctl(wire.link.socket.get(), SIOCOUTQ, &bytes) != 0 || bytes == 0);
}

void TcpWires::write(int rank, std::size_t offset, const std::byte* from, std::size_t size) {
  if (wire(rank).broken.empty()) wire(rank).sender.write(offset, from, size);
}

void TcpWires::publish(int rank, std::size_t offset, std::uint64_t value) {
  Wire& to = wire(rank);
  if (!to.broken.empty()) return;
  to.sender.counter(offset, value);
  flush(to);
}

// A peer that has gone may have said why before: what came is read before `broken` is set.
void TcpWires::flush(Wire& wire) {
  std::string trouble = wire.sender.flush(wire.link.socket.get());
  if (trouble.empty()) return;
  (void)wire.receiver->take(wire.link.socket.get());
  wire.broken = std::move(trouble);
  wire.sender = {};
}

void TcpWires::progress() {
  for (Wire& wire : wires_) {
    if (!wire.receiver || !wire.broken.empty()) continue;
    if (!wire.sender.empty()) flush(wire);
    if (!wire.broken.empty()) continue;
    wire.broken = wire.receiver->take(wire.link.socket.get());
    if (!wire.broken.empty()) wire.sender = {};
  }
}

bool TcpWires::flushed(int& to_whom) const {
  for (std::size_t r = 0; r < wires_.size(); ++r)
    if (!wires_[r].sender.empty()) {
      to_whom = static_cast<int>(r);
      return false;
    }
  return true;
}

void TcpWires::sleep(std::chrono::milliseconds most) {
  std::vector<pollfd> entries;
  for (const Wire& wire : wires_)
    if (wire.receiver && wire.broken.empty())
      entries.push_back({wire.link.socket.get(),
                         static_cast<short>(wire.sender.empty() ? POLLIN : POLLIN | POLLOUT), 0});
  doorbells_.watch(entries);
  if (poll(entries.data(), entries.size(), static_cast<int>(most.count())) <= 0) return;
  doorbells_.silence(entries);
}

std::string TcpWires::describe(int rank) const {
  return "rank " + std::to_string(rank) + ": tcp, " + wire(rank).link.address;
}

}  // namespace ringsmith::comm::tcp
