// The network transport connects ranks that do not share memory.
//
// In shared memory every rank writes its own segment, and the others read it. The network imitates
// this: each rank holds a mirror of every remote rank's segment, and the remote rank sends its
// writes to the mirror, at the same offset.
//
//      rank 0's host                                   rank 1's host
//      [ segment of 0 ] --- write(1, offset, n) -----> [ mirror of 0 ]   read by rank 1 only
//      [ mirror of 1  ] <-- write(0, offset, n) ------ [ segment of 1 ]
//
// So slots, counters, the agreement barrier and the board work as in shared memory, and every
// executor except mapped runs on any network. The one rule: a counter must not arrive before the
// bytes that it publishes. TCP keeps the order within a stream, and RDMA within a queue pair.
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

// Receives the wake-ups from local ranks. A rank with remote peers cannot sleep on a futex, so
// Segments::ring() sends it a byte over the mesh's Unix socket instead.
class Doorbells {
 public:
  // sockets: one for each local peer; owned by Segments.
  explicit Doorbells(std::vector<int> sockets) : sockets_(std::move(sockets)) {}
  void watch(std::vector<pollfd>& entries) const {
    for (const int socket : sockets_) entries.push_back({socket, POLLIN, 0});
  }
  // Reads the bytes that peers have sent. `entries` must end with the entries that watch()
  // appended.
  void silence(const std::vector<pollfd>& entries) {
    std::array<std::byte, 64> rings;
    const std::size_t first = entries.size() - sockets_.size();
    for (std::size_t i = 0; i < sockets_.size(); ++i) {
      if (entries[first + i].revents == 0) continue;
      ssize_t got = 0;
      do got = recv(sockets_[i], rings.data(), rings.size(), MSG_DONTWAIT);
      while (got == ssize_t{rings.size()});
      if (got == 0) sockets_[i] = -1;  // otherwise poll() would return immediately from now on
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

  // Queues the write of `size` bytes at `from` to `offset` in rank's mirror of this rank. A later
  // publish() to rank or progress() sends them. If size > kCopied, the bytes must not change until
  // rank acknowledges them with a credit or a round of the agreement barrier.
  virtual void write(int rank, std::size_t offset, const std::byte* from, std::size_t size) = 0;
  // Like write(), for bytes in any memory. The bytes may change once the next publish() to rank has
  // returned. Bytes that are unsent by then are copied to `shelter`, the place at `offset` in this
  // rank's own segment.
  virtual void lend(int rank, std::size_t offset, const std::byte* from, std::size_t size,
                    std::byte* shelter) {
    std::memcpy(shelter, from, size);
    write(rank, offset, shelter, size);
  }
  // Like write(), for an atomic counter's new value, but also sends as much as the network accepts
  // without blocking.
  virtual void publish(int rank, std::size_t offset, std::uint64_t value) = 0;
  // Like publish(), for a counter that no rank waits for yet: the next publish() or progress() may
  // send it.
  virtual void note(int rank, std::size_t offset, std::uint64_t value) {
    publish(rank, offset, value);
  }

  // Receives all pending bytes and sends as much as the network accepts. Never blocks. Not
  // thread-safe: called by the thread whose turn it is (queue.hpp).
  virtual void progress() = 0;
  // True if everything has been handed to the network. If not, to_whom is a rank with unsent bytes.
  [[nodiscard]] virtual bool flushed(int& to_whom) const = 0;
  // Blocks until bytes may have arrived, more can be sent, or a local rank rang; at most `most`.
  virtual void sleep(std::chrono::milliseconds most) = 0;

  // Called when the group has failed, so that the destructor waits only briefly for peers.
  void abandon() { timeout_ = std::min(timeout_, std::chrono::milliseconds(500)); }
  // Returns the reason why rank can no longer be reached, or an empty string if it can.
  [[nodiscard]] virtual const std::string& broken(int rank) const = 0;
  // True if the bytes from rank arrived damaged. broken() then is a predicate about the bytes:
  // "do not match ...".
  [[nodiscard]] virtual bool damaged(int /*rank*/) const { return false; }
  // Returns a socket to rank's process. The kernel closes the other end when that process ends.
  [[nodiscard]] virtual int socket(int rank) const = 0;
  [[nodiscard]] virtual std::string describe(int rank) const = 0;

  static constexpr std::size_t kCopied = 64;  // bytes

 protected:
  // timeout: how long the destructor may wait for bytes in flight.
  NetworkTransport(Doorbells doorbells, std::chrono::milliseconds timeout)
      : doorbells_(std::move(doorbells)), timeout_(timeout) {}
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }
  Doorbells doorbells_;

 private:
  std::chrono::milliseconds timeout_;
};

}  // namespace ringsmith::comm
