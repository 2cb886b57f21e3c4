// The network: to the ranks whose memory cannot be mapped, because they are on other hosts.
//
// In shared memory every rank writes its own segment, and the others read it. The network keeps
// that picture: each host holds a mirror of a remote rank's segment, and what the rank writes
// travels into the mirror, at the same place.
//
//      rank 0's host                                   rank 1's host
//      [ segment of 0 ] --- write(1, offset, n) -----> [ mirror of 0 ]   read by rank 1 only
//      [ mirror of 1  ] <-- write(0, offset, n) ------ [ segment of 1 ]
//
// So slots, counters, the agreement barrier and the board are what they are in shared memory, and
// every executor runs on any network as it is. One rule comes with it: a counter must not arrive
// before the bytes that it publishes. TCP keeps the order of its stream; RDMA that of its queue.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <vector>

namespace ringsmith::comm {

// How local ranks wake one that sleeps on its sockets. Who has remote peers cannot sleep on a
// futex; PeerMemory::ring() sends a byte over the Unix socket of the mesh instead.
class Doorbells {
 public:
  // One socket of each local peer; owned by the mesh.
  explicit Doorbells(std::vector<int> sockets) : sockets_(std::move(sockets)) {}
  // Appends what poll() is to watch.
  void watch(std::vector<pollfd>& entries) const {
    for (const int socket : sockets_) entries.push_back({socket, POLLIN, 0});
  }
  // Takes the bytes of those that rang. A peer that has gone rings no more: others look for that.
  // `entries`: those that watch() appended, at the end.
  void silence(const std::vector<pollfd>& entries) {
    std::array<std::byte, 64> rings;
    const std::size_t first = entries.size() - sockets_.size();
    for (std::size_t i = 0; i < sockets_.size(); ++i) {
      if (entries[first + i].revents == 0) continue;
      ssize_t got = 0;
      do got = recv(sockets_[i], rings.data(), rings.size(), MSG_DONTWAIT);
      while (got == ssize_t{rings.size()});
      if (got == 0) sockets_[i] = -1;  // or poll() would return at once from now on
    }
  }

 private:
  std::vector<int> sockets_;
};

class NetworkTransport {
 public:
  virtual ~NetworkTransport() = default;
  NetworkTransport(const NetworkTransport&) = delete;
  NetworkTransport& operator=(const NetworkTransport&) = delete;

  // Copies `size` bytes at `from` to `offset` in rank's mirror of this rank. Only noted: sent by
  // the next publish() or progress(). More than kCopied bytes must stay as they are until rank has
  // answered for them (a credit, a round of the agreement barrier), or until flushed().
  virtual void write(int rank, std::size_t offset, const std::byte* from, std::size_t size) = 0;
  // The same for bytes that are only lent, from any memory: they may change once the next publish()
  // to rank has returned. What the network has not taken by then goes from `shelter`, the place at
  // `offset` of this rank's own segment.
  virtual void lend(int rank, std::size_t offset, const std::byte* from, std::size_t size,
                    std::byte* shelter) {
    std::memcpy(shelter, from, size);
    write(rank, offset, shelter, size);
  }
  // The same for one of the atomic counters, with the value that it has now; then sends what the
  // network takes at once. Never blocks.
  virtual void publish(int rank, std::size_t offset, std::uint64_t value) = 0;
  // A counter that nobody waits for yet: it may leave with the next publish() or progress().
  virtual void note(int rank, std::size_t offset, std::uint64_t value) {
    publish(rank, offset, value);
  }

  // Takes in what has come and sends what has room. Never blocks; for the thread whose turn it is.
  virtual void progress() = 0;
  // Has all been handed to the network, whoever waits for it there? If not, to_whom is one of them.
  [[nodiscard]] virtual bool flushed(int& to_whom) const = 0;
  // Until something may have come, or there is room to send, or a local rank rang.
  virtual void sleep(std::chrono::milliseconds most) = 0;

  // The group has failed: leaving it is to wait no longer than a moment for peers.
  void abandon() { timeout_ = std::min(timeout_, std::chrono::milliseconds(500)); }
  // Empty, or why rank cannot be reached any more.
  [[nodiscard]] virtual const std::string& broken(int rank) const = 0;
  // Is that because of bytes that came changed? Then broken() is the predicate: "do not ...".
  [[nodiscard]] virtual bool damaged(int /*rank*/) const { return false; }
  // Which the kernel closes when the peer's process ends.
  [[nodiscard]] virtual int socket(int rank) const = 0;
  // One line: how rank is reached.
  [[nodiscard]] virtual std::string describe(int rank) const = 0;

  static constexpr std::size_t kCopied = 64;  // bytes

 protected:
  // timeout: how long leaving the group may wait for what is under way.
  NetworkTransport(Doorbells doorbells, std::chrono::milliseconds timeout)
      : doorbells_(std::move(doorbells)), timeout_(timeout) {}
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }
  Doorbells doorbells_;

 private:
  std::chrono::milliseconds timeout_;
};

}  // namespace ringsmith::comm
